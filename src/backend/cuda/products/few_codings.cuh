// How weights get to the lanes of a product of few rows (few.cuh): a type for each Coding (coding.h).
//   Stage     a pair of blocks in a warp's shared memory
//   Place     what of a pair a lane copies there; advance(): so many pairs on
//   decode()  the words of a block for a lane, as BF16; with kHasRest what they are is the sum of two
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/products/few.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kLanes = 32;
using TileWords = uint32_t[2][4];  // of a block of a tile: left operands of its two products

__device__ __forceinline__ uint32_t less(uint32_t a, uint32_t b) {  // pairs of BF16
  uint32_t difference;
  constexpr uint32_t kMinusOnes = 0xBF80BF80u;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(b), "r"(kMinusOnes), "r"(a));
  return difference;
}

// (word & mask) | base, in one instruction.
__device__ __forceinline__ uint32_t put_on(uint32_t word, uint32_t mask, uint32_t base) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(word), "r"(mask), "r"(base));
  return out;
}

// A copy to shared memory. Its own thread waits for it, and others of the warp after that.
template <typename T>
__device__ __forceinline__ void copy_ahead(T* to, const void* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(T)) : "memory");
  }
}

struct DenseCoding {
  static constexpr bool kHasRest = false, kHasScale = false, kHasMinimum = false;
  // A row's pieces of 16 bytes: the halves of odd rows change places, so that two rows are in different banks.
  struct Stage {
    uint4 pieces[kTileRows][8];
    __device__ static uint32_t place(uint32_t row, uint32_t piece) { return piece ^ row % 2 * 4; }
  };
  struct Place {  // eight lanes copy a row, a cache line, and four rows at a time
    const std::byte* from;
    uint64_t four_rows;
    __device__ Place(const FewWeight& weight, uint32_t pairs, uint32_t tile, uint32_t pair, uint32_t lane) {
      constexpr uint32_t kPairBytes = kPairColumns * sizeof(__nv_bfloat16);
      const uint64_t row_bytes = uint64_t{pairs} * kPairBytes;
      from = static_cast<const std::byte*>(weight.quants) + (uint64_t{tile} * kTileRows + lane / 8) * row_bytes +
             pair * kPairBytes + lane % 8 * sizeof(uint4);
      four_rows = 4 * row_bytes;
    }
    __device__ void advance(uint32_t pairs) { from += pairs * kPairColumns * sizeof(__nv_bfloat16); }
    __device__ void copy(Stage& to, uint32_t lane) const {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = 4 * i + lane / 8;
        copy_ahead(&to.pieces[row][Stage::place(row, lane % 8)], from + i * four_rows);
      }
    }
  };
  static __device__ void decode(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a, TileWords&) {
    const uint32_t g = lane / 4, place = Stage::place(g, block * 4 + lane % 4);
    const uint4 row = stage.pieces[g][place], row_8 = stage.pieces[g + 8][place];
    a[0][0] = row.x, a[0][1] = row_8.x, a[0][2] = row.y, a[0][3] = row_8.y;
    a[1][0] = row.z, a[1][1] = row_8.z, a[1][2] = row.w, a[1][3] = row_8.w;
  }
};

// Packed: quants and scales of a pair, one behind the other.
template <uint32_t kQuantPieces, typename Scales>
struct PackedStage {
  uint4 quants[kQuantPieces][kLanes];
  Scales scales[kLanes];  // each of the four lanes of g copies them
};
template <typename Stage>
struct PackedPlace {
  const std::byte *quants, *scales;
  __device__ PackedPlace(const FewWeight& weight, uint32_t pairs, uint32_t tile, uint32_t pair, uint32_t lane) {
    const uint64_t at = uint64_t{tile} * pairs + pair;
    quants = static_cast<const std::byte*>(weight.quants) + at * sizeof(Stage::quants) + lane * sizeof(uint4);
    scales = static_cast<const std::byte*>(weight.scales) + at * sizeof(Stage::scales) / 4 +
             lane / 4 * sizeof(Stage::scales[0]);
  }
  __device__ void advance(uint32_t pairs) {
    quants += pairs * sizeof(Stage::quants);
    scales += pairs * sizeof(Stage::scales) / 4;
  }
  __device__ void copy(Stage& to, uint32_t lane) const {
#pragma unroll
    for (uint32_t i = 0; i < sizeof(Stage::quants) / sizeof(Stage::quants[0]); ++i) {
      copy_ahead(&to.quants[i][lane], quants + i * sizeof(Stage::quants[0]));
    }
    copy_ahead(&to.scales[lane], scales);
  }
};

// 0x4300 + n is 128 + n for n below 128; 0xC300 is -128, 0xC380 is -256: low seven bits, and the sign's part.
struct ByteCoding {
  static constexpr bool kHasRest = true, kHasScale = true, kHasMinimum = false;
  using Stage = PackedStage<2, uint2>;
  using Place = PackedPlace<Stage>;
  static __device__ void decode(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a, TileWords& rest) {
    const uint4 quants = stage.quants[block][lane];
    const uint32_t rows[2][2] = {{quants.x, quants.z}, {quants.y, quants.w}};
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t product = i / 4, word = rows[product][i % 2] >> i / 2 % 2 * 8;
      a[product][i % 4] = put_on(word, 0x007F007Fu, 0x43004300u);
      rest[product][i % 4] = put_on(word, 0x00800080u, 0xC300C300u);
    }
  }
  static __device__ float2 scale(const Stage& stage, uint32_t block, uint32_t lane) {
    return __half22float2(reinterpret_cast<const __half2*>(&stage.scales[lane])[block]);
  }
};

template <bool HasMinimum>
struct NibbleCoding {
  static constexpr bool kHasRest = false, kHasScale = true, kHasMinimum = HasMinimum;
  using Stage = PackedStage<1, std::conditional_t<HasMinimum, uint4, uint2>>;
  using Place = PackedPlace<Stage>;
  static __device__ uint32_t pair(uint32_t word, uint32_t index) {  // 128 + n, less 128 or 136
    constexpr uint32_t kZero = HasMinimum ? 0x43004300u : 0x43084308u;
    return less(put_on(word >> 4 * index, 0x000F000Fu, 0x43004300u), kZero);
  }
  static __device__ void decode(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a, TileWords&) {
    const uint2 quants = reinterpret_cast<const uint2*>(&stage.quants[0][lane])[block];
#pragma unroll
    for (uint32_t product = 0; product < 2; ++product) {
#pragma unroll
      for (uint32_t part = 0; part < 2; ++part) {
        a[product][2 * part] = pair(quants.x, 2 * product + part);
        a[product][2 * part + 1] = pair(quants.y, 2 * product + part);
      }
    }
  }
  static __device__ float2 scale(const Stage& stage, uint32_t block, uint32_t lane) {
    return __half22float2(reinterpret_cast<const __half2*>(&stage.scales[lane])[block]);
  }
  static __device__ float2 minimum(const Stage& stage, uint32_t block, uint32_t lane) {
    return __half22float2(reinterpret_cast<const __half2*>(&stage.scales[lane])[2 + block]);
  }
};

// Calls `run` with the coding, a value of its type.
template <typename Run>
cudaError_t with_coding(Coding coding, const Run& run) {
  switch (coding) {
    case Coding::kNone:
      break;
    case Coding::kDense:
      return run(DenseCoding());
    case Coding::kQ8:
      return run(ByteCoding());
    case Coding::kQ4:
      return run(NibbleCoding<false>());
    case Coding::kQ4Min:
      return run(NibbleCoding<true>());
  }
  return cudaErrorInvalidValue;
}

}  // namespace headwater::backend::cuda
