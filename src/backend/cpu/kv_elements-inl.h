// How a target multiplies KV elements: one policy a type.
//
//   Stored   the element in a page                   Factor   what it is multiplied by (a query, a softmax weight)
//   kStep    elements of a row taken at once         Loaded   kLanes columns x kStep elements, ready for any number of
//   rows step()   sum += Loaded * factors[0 .. kStep), each lane its own column
//
// bf16 comes in pairs. With AVX512_BF16 the instruction takes the pair and factors are bf16 too; elsewhere the halves
// of a 32-bit lane are widened by a shift and a mask, and factors stay f32.
#pragma once

#include "backend/cpu/simd-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// store_weights() turns the scores [first, last), multiples of kLanes, into weights 2^(score - shift), and returns their
// sum. They are summed as they are stored, so that numerator and denominator see the same roundings, in two chains that
// go by a key's place in the cut: adding a weight of 0 to either changes nothing.
struct F32Factor {
  using Factor = float;
  static constexpr bool kScaled = false;
  static F32 weight(F32 exponent) { return exp2_bounded(exponent); }
  static void store_factors(Factor* to, F32 v) { store(to, v); }
  static void store_pair(Factor* to, F32 low, F32 high) { store(to, low), store(to + kLanes, high); }
  static float store_weights(Factor* to, const float* scores, uint32_t first, uint32_t last, F32 shift) {
    F32 sums[2] = {zero(), zero()};
    const auto weigh = [&](uint32_t i, F32& sum) {
      const F32 v = weight(sub(load(scores + i), shift));
      store(to + i, v);
      sum = add(sum, v);
    };
    uint32_t i = first;
    if (i < last && i / kLanes % 2 == 1) weigh(i, sums[1]), i += kLanes;
    for (; i + 2 * kLanes <= last; i += 2 * kLanes) weigh(i, sums[0]), weigh(i + kLanes, sums[1]);
    if (i < last) weigh(i, sums[0]);
    return reduce_add(add(sums[0], sums[1]));
  }
};

struct F32Elements : F32Factor {
  using Stored = float;
  using Loaded = F32;
  static constexpr uint32_t kStep = 1;
  static Loaded load_step(const Stored* from) { return load(from); }
  static F32 step(F32 sum, Loaded v, const Factor* factor) { return fma(v, set1(*factor), sum); }
  static void narrow(Stored* to, F32 v) { store(to, v); }
};

struct F16Elements : F32Factor {
  using Stored = uint16_t;
  using Loaded = F32;
  static constexpr uint32_t kStep = 1;
  static Loaded load_step(const Stored* from) { return load_f16(from); }
  static F32 step(F32 sum, Loaded v, const Factor* factor) { return fma(v, set1(*factor), sum); }
  static void narrow(Stored* to, F32 v) { store_f16(to, v); }
};

#if defined(__AVX512BF16__)

struct Bf16Elements {
  using Stored = uint16_t;
  using Factor = uint16_t;
  using Loaded = __m512i;
  static constexpr uint32_t kStep = 2;
  static constexpr bool kScaled = false;
  static F32 weight(F32 exponent) { return exp2_rough(exponent); }
  static Loaded load_step(const Stored* from) { return _mm512_loadu_si512(from); }
  static F32 step(F32 sum, Loaded v, const Factor* factors) {
    int pair;
    __builtin_memcpy(&pair, factors, sizeof pair);
    return _mm512_dpbf16_ps(sum, (__m512bh)v, (__m512bh)_mm512_set1_epi32(pair));
  }
  static void narrow(Stored* to, F32 v) { store_bf16(to, v); }
  // Denormals become 0, as the products would take them.
  static void store_factors(Factor* to, F32 v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(v));
  }
  static void store_pair(Factor* to, F32 low, F32 high) {
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  static float store_weights(Factor* to, const float* scores, uint32_t first, uint32_t last, F32 shift) {
    const auto weight_of = [&](uint32_t i) { return weight(sub(load(scores + i), shift)); };
    F32 sums[2] = {zero(), zero()};
    // Thirty-two weights at once; a vector that has no partner inside [first, last) is summed beside zeros.
    const auto add_to = [](F32& sum, __m512bh narrowed) {
      sum = _mm512_dpbf16_ps(sum, narrowed, (__m512bh)_mm512_set1_epi16(0x3f80));  // times 1
    };
    const auto weigh_half = [&](uint32_t i) {
      const F32 v = weight_of(i);
      store_bf16(to + i, v);
      const bool low = i / kLanes % 2 == 0;
      add_to(sums[i / (2 * kLanes) % 2], low ? _mm512_cvtne2ps_pbh(zero(), v) : _mm512_cvtne2ps_pbh(v, zero()));
    };
    const auto weigh_pair = [&](uint32_t i, F32& sum) {
      const __m512bh narrowed = _mm512_cvtne2ps_pbh(weight_of(i + kLanes), weight_of(i));
      _mm512_storeu_si512(to + i, (__m512i)narrowed);
      add_to(sum, narrowed);
    };
    uint32_t i = first;
    if (i < last && i / kLanes % 2 == 1) weigh_half(i), i += kLanes;
    if (i + 2 * kLanes <= last && i / (2 * kLanes) % 2 == 1) weigh_pair(i, sums[1]), i += 2 * kLanes;
    for (; i + 4 * kLanes <= last; i += 4 * kLanes) weigh_pair(i, sums[0]), weigh_pair(i + 2 * kLanes, sums[1]);
    for (; i + 2 * kLanes <= last; i += 2 * kLanes) weigh_pair(i, sums[i / (2 * kLanes) % 2]);
    if (i < last) weigh_half(i);
    return reduce_add(add(sums[0], sums[1]));
  }
};

#else

struct Bf16Elements : F32Factor {
  using Stored = uint16_t;
  struct Loaded {
    F32 even;
    F32 odd;
  };
  static constexpr uint32_t kStep = 2;
  static Loaded load_step(const Stored* from) {
    const U32 pairs = load_u32(from);
    return {as_f32(shift_left<16>(pairs)), as_f32(bit_and(pairs, 0xffff0000u))};
  }
  static F32 step(F32 sum, Loaded v, const Factor* factors) {
    return fma(v.odd, set1(factors[1]), fma(v.even, set1(factors[0]), sum));
  }
  static void narrow(Stored* to, F32 v) { store_bf16(to, v); }
};

#endif

// e4m3, once it is widened to bf16 (f8_pages-inl.h), which is exact. Scales stay outside the products: a key's is applied
// to its scores, a value's to its weights. The denominator sums the weights without scales, in F32Factor's two chains.
struct F8Elements : Bf16Elements {
  static constexpr bool kScaled = true;
  static float store_weights(Factor* to, const float* scores, const float* scales, uint32_t first, uint32_t last,
                             F32 shift) {
    F32 sums[2] = {zero(), zero()};
    const auto weigh = [&](uint32_t i) {  // the weight that is stored
      const F32 v = weight(sub(load(scores + i), shift));
      F32& sum = sums[i / kLanes % 2];
      sum = add(sum, v);
      return mul(v, load(scales + i));
    };
    uint32_t i = first;
    if (i < last && i / kLanes % 2 == 1) store_factors(to + i, weigh(i)), i += kLanes;
    for (; i + 2 * kLanes <= last; i += 2 * kLanes) {
      const F32 low = weigh(i);
      store_pair(to + i, low, weigh(i + kLanes));
    }
    if (i < last) store_factors(to + i, weigh(i));
    return reduce_add(add(sums[0], sums[1]));
  }
};

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
