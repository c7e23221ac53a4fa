// The last step of a row: its partials meet, in the order of the plan's merge table, whatever the order in which they came.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/attention/state.cuh"

namespace headwater::backend::cuda {

__device__ __forceinline__ uint64_t partial_row(const AttendCall& call, uint32_t slot, uint32_t q_head) {
  return uint64_t{slot} * call.q_heads + q_head;
}

__device__ __forceinline__ uint64_t out_offset(const AttendCall& call, uint32_t token, uint32_t q_head) {
  return token * call.out_stride + uint64_t{q_head} * call.head_dim;
}

__device__ __forceinline__ void store_lse2(const AttendCall& call, uint32_t token, uint32_t q_head, float lse2) {
  if (call.lse2 != nullptr) call.lse2[uint64_t{token} * call.q_heads + q_head] = lse2;
}

// One warp merges one row; a lane has columns 128 i + 4 lane and the three behind.
template <typename Element, uint32_t kHeadDim, bool kInvariant>
class RowMerger {
 public:
  static constexpr uint32_t kQuads = (kHeadDim + 127) / 128;

  __device__ RowMerger(const AttendCall& call, uint32_t lane) : call_(call), lane_(lane) {}

  // Plan position of the token, and its query head.
  __device__ void merge(uint32_t position, uint32_t q_head) {
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) v_[i] = make_float4(0, 0, 0, 0);
    const uint32_t token = call_.token_order[position];
    const uint32_t begin = call_.merge_indptr[position], end = call_.merge_indptr[position + 1];
    float lse2 = sink_lse2(call_, q_head);
    if (call_.token_empty[position] == 0) lse2 = kInvariant ? fold(begin, end, q_head) : weigh(begin, end, q_head);
    const uint64_t offset = out_offset(call_, token, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      if (column(i) >= call_.head_dim) continue;
      if (call_.is_wide) {
        *reinterpret_cast<float4*>(static_cast<float*>(call_.out) + offset + column(i)) = v_[i];
      } else {
        *reinterpret_cast<uint2*>(static_cast<Element*>(call_.out) + offset + column(i)) =
            make_uint2(pack<Element>(v_[i].x, v_[i].y), pack<Element>(v_[i].z, v_[i].w));
      }
    }
    if (lane_ == 0) store_lse2(call_, token, q_head, lse2);
  }

 private:
  __device__ uint32_t column(uint32_t i) const {
    return 128 * i + 4 * lane_;
  }
  __device__ float lse2_of(uint64_t row) const {
    const float lse2 = __ldcg(call_.partial_lse2 + row);
    return is_empty(lse2) ? -INFINITY : lse2;
  }
  // Columns beyond the head's are read, not used: a load under a condition would make the next one wait.
  __device__ float4 values_of(uint64_t row, uint32_t i) const {
    const uint32_t at = min(column(i), call_.head_dim - 4);
    return __ldcg(reinterpret_cast<const float4*>(call_.partial_values + row * call_.head_dim + at));
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
      for (uint32_t i = 0; i < kQuads; ++i) {
        const float4 v = values_of(row, i);
        v_[i] = make_float4(merged(shares, v_[i].x, v.x), merged(shares, v_[i].y, v.y), merged(shares, v_[i].z, v.z),
                            merged(shares, v_[i].w, v.w));
      }
      lse2 = shares.lse2;
    }
    return lse2;
  }

  // Weights relative to the largest of 32 states at a time; many states' loads in flight.
  __device__ float weigh(uint32_t begin, uint32_t end, uint32_t q_head) {
    constexpr uint32_t kLanes = 32, kTogether = 8 / kQuads;
    float m = -INFINITY, l = 0;
    for (uint32_t base = begin; base < end; base += kLanes) {
      const uint32_t count = min(end - base, kLanes);
      const uint32_t slot = lane_ < count ? call_.merge_slots[base + lane_] : 0;
      const float lse2 = lane_ < count ? lse2_of(partial_row(call_, slot, q_head)) : -INFINITY;
      float weight = 0;
      for (uint32_t k = 0; k < count; k += kTogether) {
        float4 v[kTogether][kQuads];
#pragma unroll
        for (uint32_t t = 0; t < kTogether; ++t) {
          const uint64_t row = partial_row(call_, __shfl_sync(~0u, slot, min(k + t, count - 1)), q_head);
#pragma unroll
          for (uint32_t i = 0; i < kQuads; ++i) v[t][i] = values_of(row, i);
        }
        if (k == 0) weight = raise(lse2, m, l);
#pragma unroll
        for (uint32_t t = 0; t < kTogether; ++t) {
          const float w = __shfl_sync(~0u, weight, (k + t) % kLanes);
          if (k + t >= count || w == 0) continue;  // nothing, or an empty state whose values may be anything
#pragma unroll
          for (uint32_t i = 0; i < kQuads; ++i) {
            v_[i] = make_float4(__fmaf_rn(w, v[t][i].x, v_[i].x), __fmaf_rn(w, v[t][i].y, v_[i].y),
                                __fmaf_rn(w, v[t][i].z, v_[i].z), __fmaf_rn(w, v[t][i].w, v_[i].w));
          }
        }
      }
    }
    if (l == 0) return -INFINITY;
    scale(__fdividef(1, l));
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
    scale(rescale);
    return weight;
  }

  __device__ void scale(float factor) {
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      v_[i] = make_float4(v_[i].x * factor, v_[i].y * factor, v_[i].z * factor, v_[i].w * factor);
    }
  }

  const AttendCall& call_;
  uint32_t lane_;
  float4 v_[kQuads];
};

}  // namespace headwater::backend::cuda
