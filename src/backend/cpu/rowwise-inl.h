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

// f(k, vector) gives the values from column k.
template <typename F>
static inline __attribute__((always_inline)) float sum_of_squares(uint64_t columns, F&& f) {
  constexpr uint32_t kVectors = kPartials / kLanes;
  F32 sums[kVectors];
  for (F32& sum : sums) sum = zero();
  for_vectors(columns, [&](uint64_t k, auto vector) {
    const F32 value = f(k, vector);
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

// What a norm multiplies each value with, beside its weight.
static inline float norm_factor(float squares, uint64_t columns, float epsilon) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(columns) + epsilon);
}

// residual = f(k, vector, residual) for every vector, and the sum of its squares.
template <typename F>
static inline __attribute__((always_inline)) float update(float* residual, uint64_t columns, F&& f) {
  return sum_of_squares(columns, [&](uint64_t k, auto vector) {
    const F32 value = f(k, vector, vector.load(residual + k));
    vector.store(residual + k, value);
    return value;
  });
}

// The sum of squares of the residual with the delta in it.
static inline float add_delta(const AddNormRow& row) {
  const float *delta = row.delta, *weight = row.delta_weight;
  const auto sum = [&](const float* values) {
    return sum_of_squares(row.columns, [&](uint64_t k, auto vector) { return vector.load(values + k); });
  };
  if (delta == nullptr) return sum(row.residual);
  if (weight == nullptr) {
    const F32 scale = set1(row.delta_scale);
    return update(row.residual, row.columns,
                  [&](uint64_t k, auto vector, F32 residual) { return fma(vector.load(delta + k), scale, residual); });
  }
  const F32 scale = set1(row.delta_scale * norm_factor(sum(delta), row.columns, row.epsilon));
  return update(row.residual, row.columns, [&](uint64_t k, auto vector, F32 residual) {
    return fma(mul(vector.load(delta + k), scale), vector.load(weight + k), residual);
  });
}

static void add_norm(const AddNormRow& row) {
  const float *residual = row.residual, *weight = row.weight;
  float* out = row.out;
  const float squares = add_delta(row);
  if (weight == nullptr) {
    for_vectors(row.columns, [&](uint64_t k, auto vector) { vector.store(out + k, vector.load(residual + k)); });
    return;
  }
  const F32 scale = set1(norm_factor(squares, row.columns, row.epsilon));
  for_vectors(row.columns, [&](uint64_t k, auto vector) {
    vector.store(out + k, mul(mul(vector.load(residual + k), scale), vector.load(weight + k)));
  });
}

// x / (1 + e^-steep), the sigmoid of `steep` times x.
static inline F32 times_sigmoid(F32 x, F32 steep) {
  return div(x, add(set1(1.0f), exp(sub(zero(), steep))));
}

// Activations give gated(gate, up). NaN stays NaN: min and max give their second argument then.
struct Silu {
  static inline F32 gated(F32 gate, F32 up) { return mul(times_sigmoid(gate, gate), up); }
};
// 1 + tanh(x) = 2 sigmoid(2 x): no difference of nearly equal numbers for negative gates.
struct GeluTanh {
  static inline F32 gated(F32 gate, F32 up) {
    const F32 inner = mul(gate, fma(mul(gate, gate), set1(0.044715f), set1(1.0f)));
    return mul(times_sigmoid(gate, mul(inner, set1(1.5957691216057308f))), up);  // 2 sqrt(2 / pi)
  }
};
struct SwigluClamped {
  static inline F32 gated(F32 gate, F32 up) {
    const F32 limit = set1(7.0f);
    const F32 low = min(limit, gate);
    const F32 inside = max(set1(-7.0f), min(limit, up));
    return mul(times_sigmoid(low, mul(low, set1(1.702f))), add(inside, set1(1.0f)));
  }
};

template <typename Activation>
static void gate_mul(const float* gate, const float* up, uint64_t columns, float* out) {
  for_vectors(columns, [&](uint64_t k, auto vector) {
    vector.store(out + k, Activation::gated(vector.load(gate + k), vector.load(up + k)));
  });
}

static void cap(float* values, float scale, float softcap, uint64_t columns) {
  const F32 inner = set1(softcap > 0 ? scale / softcap : scale);
  for_vectors(columns, [&](uint64_t k, auto vector) {
    F32 value = mul(vector.load(values + k), inner);
    if (softcap > 0) value = mul(tanh(value), set1(softcap));
    vector.store(values + k, value);
  });
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
