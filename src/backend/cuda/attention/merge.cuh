// The last step of a row: where its partials meet. Whoever writes the last partial of a token and KV head merges them all, in
// the order of the plan's merge table, whatever the order of arrival.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/attention/state.cuh"

namespace headwater::backend::cuda {

__device__ __forceinline__ uint64_t partial_row(const AttendCall& call, uint32_t slot, uint32_t q_head) {
  return uint64_t{slot} * call.q_heads + q_head;
}

template <typename Element>
__device__ __forceinline__ void store_out(const AttendCall& call, uint64_t offset, float a, float b) {
  if (call.is_wide) {
    *reinterpret_cast<float2*>(static_cast<float*>(call.out) + offset) = make_float2(a, b);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<Element*>(call.out) + offset) = pack<Element>(a, b);
  }
}

__device__ __forceinline__ uint64_t out_offset(const AttendCall& call, uint32_t token, uint32_t q_head) {
  return token * call.out_stride + uint64_t{q_head} * call.head_dim;
}

__device__ __forceinline__ void store_lse2(const AttendCall& call, uint32_t token, uint32_t q_head, float lse2) {
  if (call.lse2 != nullptr) call.lse2[uint64_t{token} * call.q_heads + q_head] = lse2;
}

// One warp merges one row. Pairs of columns: 64 i + 2 lane.
template <typename Element, uint32_t kHeadDim, bool kInvariant>
class RowMerger {
 public:
  static constexpr uint32_t kPairs = kHeadDim / 64;

  __device__ RowMerger(const AttendCall& call, uint32_t lane) : call_(call), lane_(lane) {}

  // Plan position of the token, and its query head.
  __device__ void merge(uint32_t position, uint32_t q_head) {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) v_[i] = make_float2(0, 0);
    const uint32_t token = call_.token_order[position];
    const uint32_t begin = call_.merge_indptr[position], end = call_.merge_indptr[position + 1];
    float lse2 = -INFINITY;
    if (call_.token_empty[position] != 0) {
      lse2 = sink_lse2(call_, q_head);
    } else if (kInvariant) {
      lse2 = fold(begin, end, q_head);
    } else {
      lse2 = weigh(begin, end, q_head);
    }
    const uint64_t offset = out_offset(call_, token, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) {
      const uint32_t column = 64 * i + 2 * lane_;
      if (column < call_.head_dim) store_out<Element>(call_, offset + column, v_[i].x, v_[i].y);
    }
    if (lane_ == 0) store_lse2(call_, token, q_head, lse2);
  }

 private:
  __device__ float lse2_of(uint64_t row) const {
    const float lse2 = __ldcg(call_.partial_lse2 + row);
    return is_empty(lse2) ? -INFINITY : lse2;
  }
  __device__ float2 values_of(uint64_t row, uint32_t i) const {
    const uint32_t column = 64 * i + 2 * lane_;
    if (column >= call_.head_dim) return make_float2(0, 0);
    return __ldcg(reinterpret_cast<const float2*>(call_.partial_values + row * call_.head_dim + column));
  }

  // The left fold, one state after the other.
  __device__ float fold(uint32_t begin, uint32_t end, uint32_t q_head) {
    float lse2 = -INFINITY;
    for (uint32_t at = begin; at < end; ++at) {
      const uint64_t row = partial_row(call_, call_.merge_slots[at], q_head);
      const float next = lse2_of(row);
      if (is_empty(next)) continue;
      const Shares shares = shares_of(lse2, next);
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) {
        const float2 v = values_of(row, i);
        v_[i] = make_float2(merged(shares, v_[i].x, v.x), merged(shares, v_[i].y, v.y));
      }
      lse2 = shares.lse2;
    }
    return lse2;
  }

  // Weights relative to the largest of 32 states at a time; many states' loads in flight.
  __device__ float weigh(uint32_t begin, uint32_t end, uint32_t q_head) {
    constexpr uint32_t kLanes = 32, kTogether = 8;
    float m = -INFINITY, l = 0;
    for (uint32_t base = begin; base < end; base += kLanes) {
      const uint32_t count = min(end - base, kLanes);
      const uint32_t slot = lane_ < count ? call_.merge_slots[base + lane_] : 0;
      const float lse2 = lane_ < count ? lse2_of(partial_row(call_, slot, q_head)) : -INFINITY;
      float weight = 0;
      for (uint32_t k = 0; k < count; k += kTogether) {
        float2 v[kTogether][kPairs];
#pragma unroll
        for (uint32_t t = 0; t < kTogether; ++t) {
          const uint64_t row = partial_row(call_, __shfl_sync(~0u, slot, (k + t) % kLanes), q_head);
#pragma unroll
          for (uint32_t i = 0; i < kPairs; ++i) v[t][i] = k + t < count ? values_of(row, i) : make_float2(0, 0);
        }
        if (k == 0) weight = raise(lse2, m, l);
#pragma unroll
        for (uint32_t t = 0; t < kTogether; ++t) {
          const float w = __shfl_sync(~0u, weight, (k + t) % kLanes);
          if (w == 0) continue;  // nothing, or an empty state whose values may be anything
#pragma unroll
          for (uint32_t i = 0; i < kPairs; ++i) {
            v_[i].x = __fmaf_rn(w, v[t][i].x, v_[i].x);
            v_[i].y = __fmaf_rn(w, v[t][i].y, v_[i].y);
          }
        }
      }
    }
    if (l == 0) return -INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) v_[i] = make_float2(__fdividef(v_[i].x, l), __fdividef(v_[i].y, l));
    return m + log2f(l);
  }

  // The weight of this lane's state once m is the largest of all so far; what was summed is rescaled.
  __device__ float raise(float lse2, float& m, float& l) {
    float largest = lse2;
    for (uint32_t offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
    if (largest == -INFINITY) return 0;
    const float before = m;
    m = fmaxf(m, largest);
    const float rescale = before == -INFINITY ? 0 : ptx::exp2(before - m);
    const float weight = ptx::exp2(lse2 - m);
    float sum = weight;
    for (uint32_t offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    l = l * rescale + sum;
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) v_[i] = make_float2(v_[i].x * rescale, v_[i].y * rescale);
    return weight;
  }

  const AttendCall& call_;
  uint32_t lane_;
  float2 v_[kPairs];
};

// Called by `threads` threads together once all of them have written their partials (and met): counts them in. Bit j of
// the result, valid in the thread j < tokens that asked: token j now has all its partials, and none will come.
__device__ __forceinline__ bool arrive_partials(const AttendCall& call, uint32_t position, uint32_t kv_head,
                                                uint32_t slots) {
  uint32_t* arrived = call.arrived + uint64_t{position} * call.kv_heads + kv_head;
  const uint32_t wanted = call.merge_indptr[position + 1] - call.merge_indptr[position];
  if (atomicAdd(arrived, slots) + slots != wanted) return false;
  *arrived = 0;  // for the next launch
  return true;
}

}  // namespace headwater::backend::cuda
