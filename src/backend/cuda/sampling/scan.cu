// The first pass: a row's largest logit, and each block's. Of a greedy row whose logits nothing changes it is the only one.
// A NaN counts as +inf here, so a broken row is known by its peak.
#include <algorithm>

#include "backend/cuda/device.h"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/sampling/row.cuh"

namespace headwater::backend::cuda::sampling {
namespace {

__device__ void scan_group(const Row& row, uint32_t group) {
  __shared__ float of_warps[kWarps];
  const uint32_t block = group * kGroupBlocks + threadIdx.x / kBlockThreads;
  float values[kThreadTokens];
  row.load(block, values);
  float largest = -INFINITY;
#pragma unroll
  for (const float value : values) largest = fmaxf(largest, value < INFINITY ? value : INFINITY);
  largest = block_largest(largest);
  if (threadIdx.x % kBlockThreads == 0 && block < row.call.blocks) row.maxima()[block] = largest;
  largest = warp_largest(largest);
  __syncthreads();  // the group before is done
  if (threadIdx.x % kLanes == 0) of_warps[threadIdx.x / kLanes] = largest;
  __syncthreads();
  if (threadIdx.x >= kLanes) return;
  largest = warp_largest(threadIdx.x < kWarps ? of_warps[threadIdx.x] : -INFINITY);
  if (threadIdx.x == 0) row.group_maxima()[group] = largest;
}

// Four at a time on a multiprocessor; where it has room for three, the assembler warns and takes that.
constexpr uint32_t kBlocksEach = 4;
__global__ void __launch_bounds__(kThreads, kBlocksEach) scan(const __grid_constant__ SampleCall call) {
  let_next_begin();
  wait_for_kernels_ahead();
  const Row row(call, blockIdx.y);
  for (uint32_t group = blockIdx.x; group < call.groups; group += gridDim.x) scan_group(row, group);
  if (!is_last_of_row(row) || threadIdx.x >= kLanes) return;
  const Peak peak = find_peak(row);
  if (threadIdx.x != 0) return;
  row.peak() = peak.logit;
  if (row.is_done()) {
    send(row, peak.logit > 0 ? kBrokenLogits : kNothingToChoose);
  } else if (!row.params.draws() && !row.params.changes_logits) {
    choose(row, peak.token);
  }
}

}  // namespace

cudaError_t launch_scan(const SampleCall& call, cudaStream_t stream) {
  // As many blocks as fit at the same time: to be the last of a row costs each of them a microsecond.
  const uint32_t fit = kBlocksEach * std::max(device_attribute(cudaDevAttrMultiProcessorCount), 1u);
  const uint32_t of_row = std::clamp(fit / call.rows, 1u, call.groups);
  return launch_overlapping(scan, dim3(of_row, call.rows), kThreads, 0, stream, call);
}

}  // namespace headwater::backend::cuda::sampling
