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

// Weights are 2^exponents. They are summed as they are stored, so that numerator and denominator see the same
// roundings.
struct F32Factor {
  using Factor = float;
  using Sum = F32;
  static Sum zero_sum() { return zero(); }
  static void store_factors(Factor* to, F32 v) { store(to, v); }
  static Sum store_weights(Factor* to, F32 exponents, Sum sum) {
    const F32 v = exp2_bounded(exponents);
    store(to, v);
    return add(sum, v);
  }
  static float reduce(Sum sum) { return reduce_add(sum); }
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
  using Sum = __m256;
  static constexpr uint32_t kStep = 2;
  static Loaded load_step(const Stored* from) { return _mm512_loadu_si512(from); }
  static F32 step(F32 sum, Loaded v, const Factor* factors) {
    int pair;
    __builtin_memcpy(&pair, factors, sizeof pair);
    return _mm512_dpbf16_ps(sum, (__m512bh)v, (__m512bh)_mm512_set1_epi32(pair));
  }
  static void narrow(Stored* to, F32 v) { store_bf16(to, v); }
  static Sum zero_sum() { return _mm256_setzero_ps(); }
  static void store_factors(Factor* to, F32 v) { store_bf16(to, v); }
  static Sum store_weights(Factor* to, F32 exponents, Sum sum) {
    const __m256bh narrowed = _mm512_cvtneps_pbh(exp2_rough(exponents));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)narrowed);
    return _mm256_dpbf16_ps(sum, narrowed, (__m256bh)_mm256_set1_epi16(0x3f80));  // times 1
  }
  static float reduce(Sum sum) { return reduce_add(_mm512_zextps256_ps512(sum)); }
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

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
