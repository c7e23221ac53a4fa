// Rows on their way: from and to partials, and to the output.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/attention/policy.h"
#include "backend/cuda/attention/ptx.cuh"
#include "backend/cuda/attention/state.cuh"

namespace headwater::backend::cuda {

__device__ __forceinline__ float* partial_row(const AttendCall& call, uint32_t slot, uint32_t q_head) {
  return call.partials + (uint64_t{slot} * call.q_heads + q_head) * partial_floats(call.head_dim);
}

__device__ __forceinline__ uint64_t out_offset(const AttendCall& call, uint32_t token, uint32_t q_head) {
  return token * call.out_stride + uint64_t{q_head} * call.head_dim;
}

__device__ __forceinline__ void store_lse2(const AttendCall& call, uint32_t token, uint32_t q_head, float lse2) {
  if (call.lse2 != nullptr) call.lse2[uint64_t{token} * call.q_heads + q_head] = lse2;
}

// A row spread over kLanes lanes: each has the columns 4 (kLanes i + lane), i < kQuads, and the three behind.
template <typename Element, uint32_t kHeadDim, uint32_t kLanes>
struct SpreadRow {
  static constexpr uint32_t kQuads = (kHeadDim + 4 * kLanes - 1) / (4 * kLanes);
  float4 v[kQuads];
  float lse2;

  __device__ static uint32_t column(uint32_t i, uint32_t lane) { return 4 * (kLanes * i + lane % kLanes); }
  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) v[i] = make_float4(0, 0, 0, 0);
    lse2 = -INFINITY;
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      v[i] = make_float4(v[i].x * factor, v[i].y * factor, v[i].z * factor, v[i].w * factor);
    }
  }
  // Adds weight * x to the columns of v[i].
  __device__ void add(uint32_t i, float weight, const float4& x) {
    v[i] = make_float4(__fmaf_rn(weight, x.x, v[i].x), __fmaf_rn(weight, x.y, v[i].y), __fmaf_rn(weight, x.z, v[i].z),
                       __fmaf_rn(weight, x.w, v[i].w));
  }
  __device__ void merge(uint32_t i, const Shares& shares, const float4& x) {
    v[i] = make_float4(merged(shares, v[i].x, x.x), merged(shares, v[i].y, x.y), merged(shares, v[i].z, x.z),
                       merged(shares, v[i].w, x.w));
  }
  // By all lanes of the row.
  __device__ void write_out(const AttendCall& call, uint32_t token, uint32_t q_head, uint32_t lane) const {
    const uint64_t offset = out_offset(call, token, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      if (column(i, lane) >= call.head_dim) continue;
      if (call.out_is_wide) {
        ptx::store(reinterpret_cast<float4*>(static_cast<float*>(call.out) + offset + column(i, lane)), v[i]);
      } else {
        ptx::store(reinterpret_cast<uint2*>(static_cast<Element*>(call.out) + offset + column(i, lane)),
                   make_uint2(pack<Element>(v[i].x, v[i].y), pack<Element>(v[i].z, v[i].w)));
      }
    }
    if (lane % kLanes == 0) store_lse2(call, token, q_head, lse2);
  }
  __device__ void write_partial(const AttendCall& call, uint32_t slot, uint32_t q_head, uint32_t lane) const {
    float* const to = partial_row(call, slot, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      if (column(i, lane) < call.head_dim) ptx::store(reinterpret_cast<float4*>(to + column(i, lane)), v[i]);
    }
    if (lane % kLanes == 0) to[call.head_dim] = lse2;
  }
};

}  // namespace headwater::backend::cuda
