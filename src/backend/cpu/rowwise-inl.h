// Operations on one row of activations.
#pragma once

#include "backend/cpu/simd-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// Sixteen partial sums of squares, by column modulo 16 and then pairwise: one order whatever the width of a vector.
static constexpr uint32_t kPartials = 16;

static inline float add_and_square(float* residual, const float* delta, uint64_t columns) {
  constexpr uint32_t kVectors = kPartials / kLanes;
  F32 sums[kVectors];
  for (F32& sum : sums) sum = zero();
  for (uint64_t k = 0; k < columns; k += kPartials) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      const uint64_t at = k + v * kLanes;
      if (at >= columns) break;
      const uint64_t left = columns - at;
      const uint32_t lanes = left < kLanes ? static_cast<uint32_t>(left) : kLanes;
      F32 value = load_first(residual + at, lanes);
      if (delta != nullptr) {
        value = add(value, load_first(delta + at, lanes));
        store_first(residual + at, value, lanes);
      }
      sums[v] = fma(value, value, sums[v]);
    }
  }
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
  for (uint64_t k = 0; k < columns; k += kLanes) {
    const uint32_t lanes = columns - k < kLanes ? static_cast<uint32_t>(columns - k) : kLanes;
    const F32 value = mul(load_first(residual + k, lanes), scale);
    store_first(out + k, mul(value, load_first(weight + k, lanes)), lanes);
  }
}

static void silu_mul(const float* gate, const float* up, uint64_t columns, float* out) {
  for (uint64_t k = 0; k < columns; k += kLanes) {
    const uint32_t lanes = columns - k < kLanes ? static_cast<uint32_t>(columns - k) : kLanes;
    const F32 x = load_first(gate + k, lanes);
    const F32 grown = exp(sub(zero(), x));
    store_first(out + k, mul(div(x, add(set1(1.0f), grown)), load_first(up + k, lanes)), lanes);
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
