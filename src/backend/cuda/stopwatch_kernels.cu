#include "backend/cuda/stopwatch_kernels.h"

#include <bit>

namespace headwater::backend::cuda {
namespace {

__global__ void flush(float4* memory, uint64_t count) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x) {
    memory[i] = make_float4(static_cast<float>(i), 1, 2, 3);
  }
}

__global__ void spin(uint64_t nanoseconds) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}

// Piece i lies at place (i * an odd number) mod a power of two: scattered, and without the load of an index.
template <uint32_t kUnroll>
__global__ void __launch_bounds__(256)
    read(const uint4* memory, uint32_t place_mask, uint32_t loads, uint32_t piece_shift, uint32_t* out) {
  uint32_t bits = 0;
  for (uint32_t first = blockIdx.x * 256 * kUnroll; first < loads; first += gridDim.x * 256 * kUnroll) {
    uint4 values[kUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint32_t i = min(first + u * 256 + threadIdx.x, loads - 1);
      const uint64_t place = (i >> piece_shift) * 2654435761u & place_mask;
      values[u] = __ldg(memory + (place << piece_shift) + (i & ((1u << piece_shift) - 1)));
    }
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) bits ^= values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
  }
  if (bits == 0x12345678) *out = bits;  // so that the loads are not left out
}

__device__ uint32_t read_result;

}  // namespace

cudaError_t launch_flush(void* memory, uint64_t bytes, cudaStream_t stream) {
  flush<<<1056, 256, 0, stream>>>(static_cast<float4*>(memory), bytes / sizeof(float4));
  return cudaGetLastError();
}

cudaError_t launch_spin(uint64_t nanoseconds, cudaStream_t stream) {
  spin<<<1, 1, 0, stream>>>(nanoseconds);
  return cudaGetLastError();
}

cudaError_t launch_read(const void* memory, uint64_t memory_bytes, uint64_t bytes, uint32_t piece_bytes,
                        ReadShape shape, cudaStream_t stream) {
  const uint64_t places = memory_bytes == 0 ? 0 : std::bit_floor(memory_bytes) / std::max(piece_bytes, 1u);
  const uint64_t loads = bytes / sizeof(uint4);
  if (!std::has_single_bit(piece_bytes) || piece_bytes < sizeof(uint4) || places == 0 || loads == 0 ||
      loads > UINT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const uint32_t piece_shift = std::countr_zero(piece_bytes / static_cast<uint32_t>(sizeof(uint4)));
  const auto place_mask = static_cast<uint32_t>(places - 1);
  const auto blocks =
      static_cast<uint32_t>(std::min<uint64_t>(shape.blocks, (loads + 256 * shape.unroll - 1) / (256 * shape.unroll)));
  void* out = nullptr;
  if (const cudaError_t found = cudaGetSymbolAddress(&out, read_result); found != cudaSuccess) return found;
  const auto* from = static_cast<const uint4*>(memory);
  switch (shape.unroll) {
    case 1:
      read<1><<<blocks, 256, 0, stream>>>(from, place_mask, static_cast<uint32_t>(loads), piece_shift,
                                          static_cast<uint32_t*>(out));
      break;
    case 2:
      read<2><<<blocks, 256, 0, stream>>>(from, place_mask, static_cast<uint32_t>(loads), piece_shift,
                                          static_cast<uint32_t*>(out));
      break;
    case 4:
      read<4><<<blocks, 256, 0, stream>>>(from, place_mask, static_cast<uint32_t>(loads), piece_shift,
                                          static_cast<uint32_t*>(out));
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda
