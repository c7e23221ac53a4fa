#include "backend/cuda/products/pack.h"

#include "backend/cuda/attention/elements.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256, kLanes = 32;

__device__ float f16_at(const std::byte* at) {  // blocks are not aligned
  const auto low = static_cast<uint32_t>(at[0]), high = static_cast<uint32_t>(at[1]);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(low | high << 8)));
}

// The blocks of the GGUF types: f16 scale, [f16 minimum,] integers. Four bits: element j in the low half of byte j, j + 16 in
// the high half. Source: ggml-common.h of llama.cpp.
struct Q8 {
  static constexpr Coding kCoding = Coding::kQ8;
  static constexpr uint32_t kBytes = 34, kScales = 1;
  static __device__ int integer(const std::byte* block, uint32_t i) { return static_cast<int8_t>(block[2 + i]); }
  static __device__ float value(const std::byte* block, uint32_t i) { return f16_at(block) * integer(block, i); }
};
struct Q4 {
  static constexpr Coding kCoding = Coding::kQ4;
  static constexpr uint32_t kBytes = 18, kScales = 1;
  static __device__ int nibble(const std::byte* integers, uint32_t i) {
    const auto byte = static_cast<uint32_t>(integers[i % 16]);
    return static_cast<int>(i < 16 ? byte & 15 : byte >> 4);
  }
  static __device__ int integer(const std::byte* block, uint32_t i) { return nibble(block + 2, i); }
  static __device__ float value(const std::byte* block, uint32_t i) { return f16_at(block) * (integer(block, i) - 8); }
};
struct Q4Min {
  static constexpr Coding kCoding = Coding::kQ4Min;
  static constexpr uint32_t kBytes = 20, kScales = 2;
  static __device__ int integer(const std::byte* block, uint32_t i) { return Q4::nibble(block + 4, i); }
  static __device__ float value(const std::byte* block, uint32_t i) {
    return f16_at(block) * integer(block, i) + f16_at(block + 2);
  }
};

template <typename Block>
struct Packed {  // a pair of a tile
  static constexpr uint32_t kBytes = packed_bytes(Block::kCoding);
  static constexpr uint32_t kIntegersBytes = packed_integers_bytes(Block::kCoding);
};

template <typename Block>
__device__ const std::byte* block_at(const UnpackCall& raw, uint64_t row, uint64_t block) {
  return raw.raw + (row * (raw.columns / kBlockColumns) + block) * Block::kBytes;
}

template <typename Element>
__global__ void copy_rows(UnpackCall raw) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= raw.rows * raw.columns) return;
  const uint64_t row = i / raw.columns, c = i % raw.columns;
  static_cast<__nv_bfloat16*>(raw.dense)[row * raw.columns_padded + c] =
      from_float<__nv_bfloat16>(to_float(reinterpret_cast<const Element*>(raw.raw)[i]));
}

template <typename Block>
__global__ void expand(UnpackCall raw) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= raw.rows * raw.columns) return;
  const uint64_t row = i / raw.columns, c = i % raw.columns;
  static_cast<__nv_bfloat16*>(raw.dense)[row * raw.columns_padded + c] =
      from_float<__nv_bfloat16>(Block::value(block_at<Block>(raw, row, c / kBlockColumns), c % kBlockColumns));
}

// A thread is a lane of a block of a tile (coding.h). What pads rows or blocks stays zero.
template <typename Block>
__global__ void pack(UnpackCall raw, uint64_t lanes) {
  constexpr bool kIsByte = std::is_same_v<Block, Q8>;
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= lanes) return;
  const uint64_t blocks = raw.columns / kBlockColumns, pairs = raw.columns_padded / kPairColumns;
  const uint64_t tile = i / kLanes / blocks, block = i / kLanes % blocks;
  const uint64_t pair = (tile / kGroupTiles * pairs + block / 2) * kGroupTiles + tile % kGroupTiles;
  std::byte* const packed = raw.packed + pair * Packed<Block>::kBytes;
  auto* const quants = reinterpret_cast<uint32_t*>(packed);
  auto* const scales = reinterpret_cast<__half*>(packed + Packed<Block>::kIntegersBytes);
  const uint32_t which = block % 2, lane = i % kLanes, g = lane / 4, t = lane % 4;
  for (uint32_t half = 0; half < 2; ++half) {
    const uint64_t row = tile * kTileRows + g + 8 * half;
    if (row >= raw.rows) continue;
    const std::byte* from = block_at<Block>(raw, row, block);
    uint32_t words[2] = {};
    for (uint32_t e = 0; e < 8; ++e) {
      const auto integer = static_cast<uint32_t>(Block::integer(from, e / 2 * 8 + 2 * t + e % 2));
      if constexpr (kIsByte) {
        words[e / 4] |= (integer & 255) << 8 * (e % 4 / 2 + e % 2 * 2);
      } else {
        words[0] |= integer << 4 * (e / 2 + e % 2 * 4);
      }
    }
    if constexpr (kIsByte) {
      uint32_t* to = quants + (which * kLanes + lane) * 4 + 2 * half;
      to[0] = words[0];
      to[1] = words[1];
    } else {
      quants[(lane * 2 + which) * 2 + half] = words[0];
    }
    if (t != 0) continue;
    for (uint32_t s = 0; s < Block::kScales; ++s) {
      scales[((g * Block::kScales + s) * 2 + which) * 2 + half] = __float2half_rn(f16_at(from + 2 * s));
    }
  }
}

uint32_t grid_of(uint64_t threads) {
  return static_cast<uint32_t>((threads + kThreads - 1) / kThreads);
}

template <typename Block>
void unpack(const UnpackCall& call, cudaStream_t stream) {
  expand<Block><<<grid_of(call.rows * call.columns), kThreads, 0, stream>>>(call);
  const uint64_t tiles = tiles_of(call.rows);
  const uint64_t lanes = tiles * (call.columns / kBlockColumns) * kLanes;
  pack<Block><<<grid_of(lanes), kThreads, 0, stream>>>(call, lanes);
}

}  // namespace

bool can_unpack(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kQ8_0 || dtype == DType::kQ4_0 ||
         dtype == DType::kQ4_1;
}

cudaError_t launch_unpack(const UnpackCall& call, cudaStream_t stream) {
  const uint32_t grid = grid_of(call.rows * call.columns);
  switch (call.dtype) {
    case DType::kBF16:
      copy_rows<__nv_bfloat16><<<grid, kThreads, 0, stream>>>(call);
      break;
    case DType::kF16:
      copy_rows<__half><<<grid, kThreads, 0, stream>>>(call);
      break;
    case DType::kQ8_0:
      unpack<Q8>(call, stream);
      break;
    case DType::kQ4_0:
      unpack<Q4>(call, stream);
      break;
    case DType::kQ4_1:
      unpack<Q4Min>(call, stream);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda
