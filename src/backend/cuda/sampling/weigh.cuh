// The pass that sums a row's weights by block and group.
#pragma once

#include "backend/cuda/sampling/row.cuh"

namespace headwater::backend::cuda::sampling {

// Of group blockIdx.x. By all threads.
__device__ inline void weigh_group(const Row& row, const Scale& scale) {
  __shared__ uint64_t of_warps[kWarps];
  const uint32_t block = blockIdx.x * kGroupBlocks + threadIdx.x / kBlockThreads;
  uint64_t sum = 0;
  if (block < row.call.blocks && scale.relative(row.maxima()[block]) >= kRelativeMin) {
    float values[kThreadTokens];
    row.load(block, values);
#pragma unroll
    for (const float value : values) sum += weight_of(scale.relative(value));
  }
  sum = block_sum(sum);
  if (threadIdx.x % kBlockThreads == 0 && block < row.call.blocks) row.sums()[block] = sum;
  sum = warp_sum(threadIdx.x % kBlockThreads == 0 ? sum : 0);
  if (threadIdx.x % kLanes == 0) of_warps[threadIdx.x / kLanes] = sum;
  __syncthreads();
  if (threadIdx.x >= kLanes) return;
  sum = warp_sum(threadIdx.x < kWarps ? of_warps[threadIdx.x] : 0);
  if (threadIdx.x == 0) row.group_sums()[blockIdx.x] = sum;
}

}  // namespace headwater::backend::cuda::sampling
