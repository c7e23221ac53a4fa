// Operations on one row of activations.
#pragma once

#include "backend/cpu/simd-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// Calls f(k, vector) for every vector of a row from column k: with the whole-vector operations, and the masked ones for
// what is left. The compiler makes two loops of it.
struct WholeVector {
  static F32 load(const float* from) { return HEADWATER_TARGET_NAMESPACE::load(from); }
  static void store(float* to, F32 v) { HEADWATER_TARGET_NAMESPACE::store(to, v); }
};
struct FirstLanes {
  uint32_t lanes;
  F32 load(const float* from) const { return load_first(from, lanes); }
  void store(float* to, F32 v) const { store_first(to, v, lanes); }
};
template <typename F>
static inline __attribute__((always_inline)) void for_vectors(uint64_t columns, F&& f) {
  uint64_t k = 0;
  for (; k + kLanes <= columns; k += kLanes) f(k, WholeVector{});
  if (k < columns) f(k, FirstLanes{static_cast<uint32_t>(columns - k)});
}

// Sixteen partial sums of squares, by column modulo 16 and then pairwise: one order whatever the width of a vector.
static constexpr uint32_t kPartials = 16;

static inline float add_and_square(float* residual, const float* delta, uint64_t columns) {
  constexpr uint32_t kVectors = kPartials / kLanes;
  F32 sums[kVectors];
  for (F32& sum : sums) sum = zero();
  for_vectors(columns, [&](uint64_t k, auto vector) {
    F32 value = vector.load(residual + k);
    if (delta != nullptr) {
      value = add(value, vector.load(delta + k));
      vector.store(residual + k, value);
    }
    F32& sum = sums[k / kLanes % kVectors];
    sum = fma(value, value, sum);
  });
  float partials[kPartials];
  for (uint32_t v = 0; v < kVectors; ++v) store(partials + v * kLanes, sums[v]);
  for (uint32_t half = kPartials / 2; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) partials[i] += partials[i + half];
  }
  return partials[0];
}

static void add_norm(float* residual, const float* delta, const float* weight, float epsilon, uint64_t columns,
                     float* out) {
  const float mean = add_and_square(residual, delta, columns) / static_cast<float>(columns);
  const F32 scale = set1(1.0f / __builtin_sqrtf(mean + epsilon));
  for_vectors(columns, [&](uint64_t k, auto vector) {
    vector.store(out + k, mul(mul(vector.load(residual + k), scale), vector.load(weight + k)));
  });
}

static void silu_mul(const float* gate, const float* up, uint64_t columns, float* out) {
  for_vectors(columns, [&](uint64_t k, auto vector) {
    const F32 x = vector.load(gate + k);
    const F32 grown = exp(sub(zero(), x));
    vector.store(out + k, mul(div(x, add(set1(1.0f), grown)), vector.load(up + k)));
  });
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
