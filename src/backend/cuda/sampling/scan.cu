// The first pass: a row's largest logit, and each block's. Of a greedy row whose logits nothing changes it is the only one.
// A NaN counts as +inf here, so a broken row is known by its peak.
#include "backend/cuda/sampling/row.cuh"

namespace headwater::backend::cuda::sampling {
namespace {

__device__ void scan_group(const Row& row) {
  __shared__ float of_warps[kWarps];
  const uint32_t block = blockIdx.x * kGroupBlocks + threadIdx.x / kBlockThreads;
  float values[kThreadTokens];
  row.load(block, values);
  float largest = -INFINITY;
#pragma unroll
  for (const float value : values) largest = fmaxf(largest, value < INFINITY ? value : INFINITY);
  largest = block_largest(largest);
  if (threadIdx.x % kBlockThreads == 0 && block < row.call.blocks) row.maxima()[block] = largest;
  largest = warp_largest(largest);
  if (threadIdx.x % kLanes == 0) of_warps[threadIdx.x / kLanes] = largest;
  __syncthreads();
  if (threadIdx.x >= kLanes) return;
  largest = warp_largest(threadIdx.x < kWarps ? of_warps[threadIdx.x] : -INFINITY);
  if (threadIdx.x == 0) row.group_maxima()[blockIdx.x] = largest;
}

// Four at a time on a multiprocessor; where it has room for three, the assembler warns and takes that.
__global__ void __launch_bounds__(kThreads, 4) scan(const __grid_constant__ SampleCall call) {
  const Row row(call, blockIdx.y);
  scan_group(row);
  if (!is_last_of_row(row) || threadIdx.x >= kLanes) return;
  const Peak peak = find_peak(row);
  if (threadIdx.x != 0) return;
  row.peak() = peak.logit;
  if (row.is_done()) {
    call.tokens[row.index] = peak.logit > 0 ? kBrokenLogits : kNothingToChoose;
  } else if (!row.params.draws() && !row.params.changes_logits) {
    choose(row, peak.token);
  }
}

}  // namespace

cudaError_t launch_scan(const SampleCall& call, cudaStream_t stream) {
  scan<<<dim3(call.groups, call.rows), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda::sampling
