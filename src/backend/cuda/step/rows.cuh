// Rows of f32 or BF16, read and written as floats.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/step/step.h"

namespace headwater::backend::cuda {

// Calls `run` with a pointer of the rows' type, null: which kernel to launch.
template <typename Run>
auto with_element(bool is_short, const Run& run) {
  return is_short ? run(static_cast<__nv_bfloat16*>(nullptr)) : run(static_cast<float*>(nullptr));
}

template <typename Element>
__device__ __forceinline__ Element* row_at(const Rows& rows, uint64_t row) {
  return static_cast<Element*>(rows.data) + row * rows.stride;
}

inline constexpr uint32_t kWarpLanes = 32;

// The sum over a block of `Threads`, the same in all of them; one order whatever the data.
template <uint32_t Threads>
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float sums[Threads / kWarpLanes];
  for (uint32_t offset = kWarpLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  __syncthreads();  // the sums of a call before are read
  if (threadIdx.x % kWarpLanes == 0) sums[threadIdx.x / kWarpLanes] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < Threads / kWarpLanes; ++i) sum += sums[i];
  return sum;
}

}  // namespace headwater::backend::cuda
