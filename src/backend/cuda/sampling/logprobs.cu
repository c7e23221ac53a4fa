// What logprobs are computed of: the weight of all tokens at temperature 1, and the likeliest ones.
#include "backend/cuda/sampling/live.cuh"
#include "backend/cuda/sampling/weigh.cuh"

namespace headwater::backend::cuda::sampling {
namespace {

using Top = LogprobParts::Top;

__device__ bool comes_before(const Top& a, const Top& b) {
  return key_of(a.logit) > key_of(b.logit) || (key_of(a.logit) == key_of(b.logit) && a.token < b.token);
}

__device__ void list_top(const Row& row, CutMemory& memory, Top* to) {
  __shared__ Top found[kTopMax];
  __shared__ uint32_t count;
  const uint32_t wanted = row.params.top_logprobs;
  const uint32_t low = key_reached_by(wanted, row, memory, kKeyOfMinusInfinity);
  const LiveTokens live(row, memory, low);
  const Kept kept = live.keep(low, wanted, [](float) { return uint64_t{1}; });
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  live.each([&](uint32_t token, float logit) {
    if (kept.holds(key_of(logit), token)) found[atomicAdd(&count, 1u)] = {static_cast<TokenId>(token), logit};
  });
  __syncthreads();
  if (threadIdx.x >= wanted) return;
  const Top own = found[threadIdx.x];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < wanted; ++i) rank += comes_before(found[i], own) ? 1 : 0;
  to[rank] = own;
}

__global__ void __launch_bounds__(kThreads, 2) logprobs(const __grid_constant__ SampleCall call) {
  __shared__ CutMemory memory;
  const Row row(call, blockIdx.y);
  if (!row.params.wants_logprobs || row.is_done()) return;
  weigh_group(row, {row.peak(), 1});
  if (!is_last_of_row(row)) return;
  LogprobParts& parts = call.logprobs[row.index];
  const uint64_t total = sum_of_row(row);
  if (threadIdx.x == 0) {
    parts.total = total;
    parts.peak = row.peak();
  }
  if (row.params.top_logprobs > 0) list_top(row, memory, parts.top);
}

}  // namespace

cudaError_t launch_logprobs(const SampleCall& call, cudaStream_t stream) {
  logprobs<<<dim3(call.groups, call.rows), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda::sampling
