#include "backend/cuda/experts/call.h"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kLanes = 32, kTokensBlock = 4, kGroupThreads = 1024;
constexpr uint32_t kOwn = kExpertsMax / kLanes;  // experts of a lane

__device__ bool goes_before(float a, uint32_t a_id, float b, uint32_t b_id) {  // as ops::choose_experts() sorts
  const bool a_nan = isnan(a), b_nan = isnan(b);
  if (a_nan != b_nan) return a_nan;
  return a > b || ((a_nan || a == b) && a_id < b_id);
}

__device__ double warp_sum(double x) {
  for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// Lane l has the experts l, l + 32, ...
__global__ void choose(ChooseCall call) {
  const uint32_t token = blockIdx.x * kTokensBlock + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  if (token >= call.tokens) return;
  const float* logits = static_cast<const float*>(call.router_logits.data) + token * call.router_logits.stride;
  float own[kOwn];
  bool is_taken[kOwn];
#pragma unroll
  for (uint32_t i = 0; i < kOwn; ++i) {
    const uint32_t expert = lane + i * kLanes;
    is_taken[i] = expert >= call.experts;
    own[i] = is_taken[i] ? 0 : logits[expert];
  }
  double greatest = 0, sum = 0;
  for (uint32_t which = 0; which < call.used; ++which) {
    float best = 0;
    uint32_t best_id = UINT32_MAX;  // none
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t expert = lane + i * kLanes;
      if (!is_taken[i] && (best_id == UINT32_MAX || goes_before(own[i], expert, best, best_id))) {
        best = own[i];
        best_id = expert;
      }
    }
    for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(~0u, best, offset);
      const uint32_t other_id = __shfl_xor_sync(~0u, best_id, offset);
      if (other_id != UINT32_MAX && (best_id == UINT32_MAX || goes_before(other, other_id, best, best_id))) {
        best = other;
        best_id = other_id;
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) is_taken[i] = is_taken[i] || best_id == lane + i * kLanes;
    if (which == 0) greatest = best;
    const double weight = exp(best - greatest);
    sum += weight;
    if (lane == 0) {
      call.choices[token * call.used + which] = best_id;
      call.weights[token * call.used + which] = static_cast<float>(weight);
    }
  }
  if (!call.renormalize) {
    double all = 0;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      if (lane + i * kLanes < call.experts) all += exp(own[i] - greatest);
    }
    sum = warp_sum(all);
  }
  if (lane != 0) return;
  for (uint32_t which = 0; which < call.used; ++which) {
    float& weight = call.weights[token * call.used + which];
    weight = static_cast<float>(weight / sum);
  }
}

__global__ void __launch_bounds__(kGroupThreads)
    group(const uint32_t* choices, uint32_t slots, uint32_t experts, uint32_t* order, uint32_t* begins) {
  __shared__ uint32_t counts[kExpertsMax], places[kExpertsMax];
  for (uint32_t i = threadIdx.x; i < experts; i += kGroupThreads) counts[i] = 0;
  __syncthreads();
  for (uint32_t slot = threadIdx.x; slot < slots; slot += kGroupThreads) atomicAdd(&counts[choices[slot]], 1u);
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i < experts; ++i) {
      begins[i] = places[i] = begin;
      begin += counts[i];
    }
    begins[experts] = begin;
  }
  __syncthreads();
  // The order within an expert is any: a slot's products do not depend on its neighbours.
  for (uint32_t slot = threadIdx.x; slot < slots; slot += kGroupThreads) {
    order[atomicAdd(&places[choices[slot]], 1u)] = slot;
  }
}

}  // namespace

cudaError_t launch_choose(const ChooseCall& call, cudaStream_t stream) {
  choose<<<(call.tokens + kTokensBlock - 1) / kTokensBlock, kTokensBlock * kLanes, 0, stream>>>(call);
  return cudaGetLastError();
}

cudaError_t launch_group(const uint32_t* choices, uint32_t slots, uint32_t experts, uint32_t* order, uint32_t* begins,
                         cudaStream_t stream) {
  group<<<1, kGroupThreads, 0, stream>>>(choices, slots, experts, order, begins);
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda
