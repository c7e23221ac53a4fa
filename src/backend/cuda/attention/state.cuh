// States of rows and their merge, as src/attention/plan.h defines them: (v, lse2), v normalised, lse2 = m + log2(l). The
// empty state is v = 0, lse2 = -inf; +inf can only come from outside and counts as empty.
#pragma once

#include "backend/cuda/attention/call.h"
#include "backend/cuda/attention/ptx.cuh"

namespace headwater::backend::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ bool is_empty(float lse2) {
  return isinf(lse2);
}

// What two states weigh in their merge: v = first * a.v + second * b.v. Exact where one is empty.
struct Shares {
  float first, second, lse2;
};
__device__ __forceinline__ Shares shares_of(float a, float b) {
  if (is_empty(b)) return {1.0f, 0.0f, is_empty(a) ? -INFINITY : a};
  if (is_empty(a)) return {0.0f, 1.0f, b};
  const float m = fmaxf(a, b);
  const float wa = ptx::exp2(a - m), wb = ptx::exp2(b - m);
  const float l = __fadd_rn(wa, wb);
  return {__fdividef(wa, l), __fdividef(wb, l), m + ptx::log2(l)};
}
__device__ __forceinline__ float merged(const Shares& shares, float a, float b) {
  return __fmaf_rn(shares.second, b, __fmul_rn(shares.first, a));
}

// The state of a row before any key: its sink alone, counted once.
__device__ __forceinline__ float sink_lse2(const AttendCall& call, uint32_t q_head) {
  return call.sinks == nullptr ? -INFINITY : call.sinks[q_head] * kLog2E;
}

// First and last key that a query token sees; `position` is ~0u where it sees none.
struct Visible {
  uint32_t begin, end;
};
__device__ __forceinline__ Visible visible_keys(const AttendCall& call, uint32_t position) {
  const uint32_t end = position + 1;
  return {call.window != 0 && end > call.window ? end - call.window : 0, end};
}

// Slots that an item fills for each of its tokens, and that a token (plan position) has in all.
__device__ __forceinline__ uint32_t slots_of_item(const AttendCall& call, uint32_t flags, uint32_t key_begin,
                                                  uint32_t key_end) {
  return (flags & attention::kFold) != 0 ? 1 : (key_end - 1) / call.cut - key_begin / call.cut + 1;
}
__device__ __forceinline__ uint32_t slots_of_token(const AttendCall& call, uint32_t position) {
  return call.merge_indptr[position + 1] - call.merge_indptr[position];
}

}  // namespace headwater::backend::cuda
