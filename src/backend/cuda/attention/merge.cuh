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

  // All weights first, so that the states' loads do not wait for one another.
  __device__ float weigh(uint32_t begin, uint32_t end, uint32_t q_head) {
    constexpr uint32_t kWarp = 32, kTogether = 4;
    float m = -INFINITY;
    for (uint32_t at = begin + lane_; at < end; at += kWarp) {
      m = fmaxf(m, lse2_of(partial_row(call_, call_.merge_slots[at], q_head)));
    }
    for (uint32_t offset = 16; offset > 0; offset /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, offset));
    if (m == -INFINITY) return m;
    float l = 0;
    for (uint32_t base = begin; base < end; base += kWarp) {
      const bool is_mine = base + lane_ < end;
      const uint32_t slot = is_mine ? call_.merge_slots[base + lane_] : 0;
      const float weight = is_mine ? ptx::exp2(lse2_of(partial_row(call_, slot, q_head)) - m) : 0;
      l += weight;
      const uint32_t count = min(end - base, kWarp);
      for (uint32_t k = 0; k < count; k += kTogether) {
        float2 v[kTogether][kPairs];
        float w[kTogether];
#pragma unroll
        for (uint32_t t = 0; t < kTogether; ++t) {
          w[t] = __shfl_sync(~0u, weight, (k + t) % kWarp);
          const uint64_t row = partial_row(call_, __shfl_sync(~0u, slot, (k + t) % kWarp), q_head);
#pragma unroll
          for (uint32_t i = 0; i < kPairs; ++i) {
            v[t][i] = k + t < count && w[t] > 0 ? values_of(row, i) : make_float2(0, 0);
          }
        }
#pragma unroll
        for (uint32_t t = 0; t < kTogether; ++t) {
#pragma unroll
          for (uint32_t i = 0; i < kPairs; ++i) {
            v_[i].x = __fmaf_rn(w[t], v[t][i].x, v_[i].x);
            v_[i].y = __fmaf_rn(w[t], v[t][i].y, v_[i].y);
          }
        }
      }
    }
    for (uint32_t offset = 16; offset > 0; offset /= 2) l += __shfl_xor_sync(~0u, l, offset);
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) v_[i] = make_float2(__fdividef(v_[i].x, l), __fdividef(v_[i].y, l));
    return m + log2f(l);
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
