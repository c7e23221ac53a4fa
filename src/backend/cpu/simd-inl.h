// One vector of floats and its operations, for the target that the including translation unit is compiled for.
//
// A kernel file (X_avx512.cc ...) defines HEADWATER_TARGET_NAMESPACE, includes this file and its X-inl.h files once,
// and is compiled with that target's flags; the compiler's own macros choose the branch below:
//
//   flags                            kLanes  F32
//   -mavx512f -mavx512bw/dq/vl           16  __m512
//   -mavx2 -mfma -mf16c                   8  __m256
//   none                                  1  float   (the plain C++ one: runs everywhere)
//
// Rules. 1. Everything here is `static inline` in the target's namespace: code compiled with AVX-512 must never be
// linked into a function another target may run. For the same reason kernel files call no inline function of other
// headers.
// 2. The result of a lane never depends on its position or on its neighbours; reductions have one fixed order per
// target.
// 3. A kernel file is compiled with -ffp-contract=off: a multiply-add is fused exactly where fma() is written. (And
// with -Wno-uninitialized: GCC 12 warns inside its own AVX-512 headers, bug 105593.)
//
// Conversions to f16 and bf16 round to nearest, ties to even, keep denormals, and keep NaN a (quiet) NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#else
#include "core/dtype.h"
#endif

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static constexpr float kInfinity = __builtin_inff();
static constexpr float kLog2E = 1.44269504088896340736f;

#if defined(__AVX512F__)

static constexpr uint32_t kLanes = 16;
using F32 = __m512;
using U32 = __m512i;

static inline __mmask16 first_mask(uint32_t count) {
  return static_cast<__mmask16>((uint32_t{1} << count) - 1);
}

static inline F32 zero() {
  return _mm512_setzero_ps();
}
static inline F32 set1(float value) {
  return _mm512_set1_ps(value);
}
static inline F32 load(const float* from) {
  return _mm512_loadu_ps(from);
}
static inline F32 load_first(const float* from, uint32_t count) {  // the other lanes are 0 and not read
  return _mm512_maskz_loadu_ps(first_mask(count), from);
}
static inline void store(float* to, F32 v) {
  _mm512_storeu_ps(to, v);
}
static inline F32 swap_pairs(F32 v) {  // lanes 2 i and 2 i + 1 exchanged
  return _mm512_permute_ps(v, 0xb1);
}
static inline void store_first(float* to, F32 v, uint32_t count) {
  _mm512_mask_storeu_ps(to, first_mask(count), v);
}
static inline F32 add(F32 a, F32 b) {
  return _mm512_add_ps(a, b);
}
static inline F32 sub(F32 a, F32 b) {
  return _mm512_sub_ps(a, b);
}
static inline F32 mul(F32 a, F32 b) {
  return _mm512_mul_ps(a, b);
}
static inline F32 div(F32 a, F32 b) {
  return _mm512_div_ps(a, b);
}
static inline F32 fma(F32 a, F32 b, F32 c) {
  return _mm512_fmadd_ps(a, b, c);
}
static inline F32 max(F32 a, F32 b) {
  return _mm512_max_ps(a, b);
}
static inline F32 min(F32 a, F32 b) {
  return _mm512_min_ps(a, b);
}
static inline F32 abs(F32 v) {
  return _mm512_abs_ps(v);
}
// Lanes [begin, end) of v; the others are `otherwise`, whatever v holds there (NaN included). 0 <= begin, end <=
// kLanes.
static inline F32 keep_lanes(F32 v, uint32_t begin, uint32_t end, F32 otherwise) {
  const auto mask = static_cast<__mmask16>(first_mask(end) & ~first_mask(begin));
  return _mm512_mask_blend_ps(mask, otherwise, v);
}
static inline float reduce_add(F32 v) {
  return _mm512_reduce_add_ps(v);
}  // halves, then quarters, ...
static inline float reduce_max(F32 v) {
  return _mm512_reduce_max_ps(v);
}

static inline U32 as_u32(F32 v) {
  return _mm512_castps_si512(v);
}
static inline F32 as_f32(U32 v) {
  return _mm512_castsi512_ps(v);
}
template <int kBits>
static inline U32 shift_left(U32 v) {
  return _mm512_slli_epi32(v, kBits);
}
static inline U32 load_u32(const void* from) {
  return _mm512_loadu_si512(from);
}
static inline U32 bit_and(U32 v, uint32_t mask) {
  return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(mask)));
}
static inline U32 add_u32(U32 v, uint32_t value) {
  return _mm512_add_epi32(v, _mm512_set1_epi32(static_cast<int>(value)));
}
template <int kBits>
static inline U32 shift_right(U32 v) {
  return _mm512_srli_epi32(v, kBits);
}

static inline F32 load_bf16(const uint16_t* from) {
  return as_f32(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))), 16));
}
static inline void store_bf16(uint16_t* to, F32 v) {
  const U32 bits = as_u32(v);
  const U32 odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  U32 rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
static inline F32 load_f16(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
static inline void store_f16(uint16_t* to, F32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#elif defined(__AVX2__)

static constexpr uint32_t kLanes = 8;
using F32 = __m256;
using U32 = __m256i;

static inline __m256i first_mask(uint32_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline F32 zero() {
  return _mm256_setzero_ps();
}
static inline F32 set1(float value) {
  return _mm256_set1_ps(value);
}
static inline F32 load(const float* from) {
  return _mm256_loadu_ps(from);
}
static inline F32 load_first(const float* from, uint32_t count) {
  return _mm256_maskload_ps(from, first_mask(count));
}
static inline void store(float* to, F32 v) {
  _mm256_storeu_ps(to, v);
}
static inline F32 swap_pairs(F32 v) {
  return _mm256_permute_ps(v, 0xb1);
}
static inline void store_first(float* to, F32 v, uint32_t count) {
  _mm256_maskstore_ps(to, first_mask(count), v);
}
static inline F32 add(F32 a, F32 b) {
  return _mm256_add_ps(a, b);
}
static inline F32 sub(F32 a, F32 b) {
  return _mm256_sub_ps(a, b);
}
static inline F32 mul(F32 a, F32 b) {
  return _mm256_mul_ps(a, b);
}
static inline F32 div(F32 a, F32 b) {
  return _mm256_div_ps(a, b);
}
static inline F32 fma(F32 a, F32 b, F32 c) {
  return _mm256_fmadd_ps(a, b, c);
}
static inline F32 max(F32 a, F32 b) {
  return _mm256_max_ps(a, b);
}
static inline F32 min(F32 a, F32 b) {
  return _mm256_min_ps(a, b);
}
static inline F32 abs(F32 v) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}
static inline F32 keep_lanes(F32 v, uint32_t begin, uint32_t end, F32 otherwise) {
  const __m256i mask = _mm256_andnot_si256(first_mask(begin), first_mask(end));
  return _mm256_blendv_ps(otherwise, v, _mm256_castsi256_ps(mask));
}
static inline float reduce_add(F32 v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
static inline float reduce_max(F32 v) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

static inline U32 as_u32(F32 v) {
  return _mm256_castps_si256(v);
}
static inline F32 as_f32(U32 v) {
  return _mm256_castsi256_ps(v);
}
template <int kBits>
static inline U32 shift_left(U32 v) {
  return _mm256_slli_epi32(v, kBits);
}
static inline U32 load_u32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
static inline U32 bit_and(U32 v, uint32_t mask) {
  return _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(mask)));
}
static inline U32 add_u32(U32 v, uint32_t value) {
  return _mm256_add_epi32(v, _mm256_set1_epi32(static_cast<int>(value)));
}
template <int kBits>
static inline U32 shift_right(U32 v) {
  return _mm256_srli_epi32(v, kBits);
}

static inline F32 load_bf16(const uint16_t* from) {
  return as_f32(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), 16));
}
static inline void store_bf16(uint16_t* to, F32 v) {
  const U32 bits = as_u32(v);
  const U32 odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const U32 rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const U32 quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const U32 chosen = as_u32(_mm256_blendv_ps(as_f32(rounded), as_f32(quiet), _mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
  const U32 halves = _mm256_srli_epi32(chosen, 16);
  const U32 packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}
static inline F32 load_f16(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
static inline void store_f16(uint16_t* to, F32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#else

static constexpr uint32_t kLanes = 1;
using F32 = float;
using U32 = uint32_t;

static inline F32 zero() {
  return 0.0f;
}
static inline F32 set1(float value) {
  return value;
}
static inline F32 load(const float* from) {
  return *from;
}
static inline F32 load_first(const float* from, uint32_t count) {
  return count > 0 ? *from : 0.0f;
}
static inline void store(float* to, F32 v) {
  *to = v;
}
static inline void store_first(float* to, F32 v, uint32_t count) {
  if (count > 0) *to = v;
}
static inline F32 add(F32 a, F32 b) {
  return a + b;
}
static inline F32 sub(F32 a, F32 b) {
  return a - b;
}
static inline F32 mul(F32 a, F32 b) {
  return a * b;
}
static inline F32 div(F32 a, F32 b) {
  return a / b;
}
static inline F32 fma(F32 a, F32 b, F32 c) {
  return a * b + c;
}  // not fused: the plain target has no such instruction
static inline F32 max(F32 a, F32 b) {
  return a > b ? a : b;
}  // b when either is NaN, as the instruction does
static inline F32 min(F32 a, F32 b) {
  return a < b ? a : b;
}
static inline F32 abs(F32 v) {
  return __builtin_fabsf(v);
}
static inline F32 keep_lanes(F32 v, uint32_t begin, uint32_t end, F32 otherwise) {
  return begin == 0 && end > 0 ? v : otherwise;
}
static inline float reduce_add(F32 v) {
  return v;
}
static inline float reduce_max(F32 v) {
  return v;
}

static inline U32 as_u32(F32 v) {
  return std::bit_cast<uint32_t>(v);
}
static inline F32 as_f32(U32 v) {
  return std::bit_cast<float>(v);
}
template <int kBits>
static inline U32 shift_left(U32 v) {
  return v << kBits;
}
static inline U32 load_u32(const void* from) {
  uint32_t v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
static inline U32 bit_and(U32 v, uint32_t mask) {
  return v & mask;
}
static inline U32 add_u32(U32 v, uint32_t value) {
  return v + value;
}
template <int kBits>
static inline U32 shift_right(U32 v) {
  return v >> kBits;
}

static inline F32 load_bf16(const uint16_t* from) {
  return bf16_to_f32(*from);
}
static inline void store_bf16(uint16_t* to, F32 v) {
  *to = f32_to_bf16(v);
}
static inline F32 load_f16(const uint16_t* from) {
  return f16_to_f32(*from);
}
static inline void store_f16(uint16_t* to, F32 v) {
  *to = f32_to_f16(v);
}

#endif

// 2^x for x <= 127.5 (attention's exponents are never positive): 2^x = 0 exactly for x < -126.5, -inf included; NaN
// stays NaN. `power` computes 2^f for f in [-0.5, 0.5].
//   x = n + f with n the nearest integer: adding 1.5 * 2^23 + 127 leaves n + 127 in the low bits of the sum, and those
//   bits shifted to the exponent's place are the float 2^n (0 for n = -127).
template <typename Power>
static inline F32 exp2_by(F32 x, Power&& power) {
  const F32 magic = set1(12582912.0f + 127.0f);
  const F32 clamped = max(set1(-127.0f), x);
  const F32 shifted = add(clamped, magic);
  const F32 fraction = sub(clamped, sub(shifted, magic));
  return mul(power(fraction), as_f32(shift_left<23>(as_u32(shifted))));
}

// Relative error below 2^-22.1: degree 5 minimax (2^-23.4) and roundings.
static inline F32 exp2_bounded(F32 x) {
  return exp2_by(x, [](F32 f) {
    F32 power = fma(set1(1.326472731307149e-3f), f, set1(9.671512991189957e-3f));
    power = fma(power, f, set1(5.550733581185341e-2f));
    power = fma(power, f, set1(2.4022242426872253e-1f));
    power = fma(power, f, set1(6.931470036506653e-1f));
    return fma(power, f, set1(1.0f));
  });
}

// Relative error below 2^-13.2 (degree 3 minimax): for results that are rounded to bf16 next, whose half unit is 2^-9.
static inline F32 exp2_rough(F32 x) {
  return exp2_by(x, [](F32 f) {
    F32 power = fma(set1(5.500893294811249e-2f), f, set1(2.4221095442771912e-1f));
    power = fma(power, f, set1(6.932829022407532e-1f));
    return fma(power, f, set1(1.0f));
  });
}

// The same for any x: +inf from 127.5 up.
static inline F32 exp2(F32 x) {
  return exp2_bounded(min(set1(128.0f), x));
}

// e^x by exp2; relative error about 2^-22 * (1 + |x| / 8).
static inline F32 exp(F32 x) {
  return exp2(mul(x, set1(kLog2E)));
}

// tanh(x), absolute error below 2^-21.
static inline F32 tanh(F32 x) {
  const F32 grown = exp2(mul(x, set1(2.0f * kLog2E)));
  return sub(set1(1.0f), div(set1(2.0f), add(grown, set1(1.0f))));
}

// log2 of positive, normal x, absolute error below 2^-23 (1 + |log2 x|); NaN and +inf give NaN. x = 2^n m with m in
// [sqrt(1/2), sqrt(2)), and log2 m = 2 / log 2 * atanh(t) with t = (m - 1) / (m + 1), |t| < 0.172, by its series to t^9.
static inline F32 log2(F32 x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3, kOne = 0x3f800000, kFraction = 0x007fffff;
  constexpr float kTwo23 = 8388608.0f;  // its low bits count units
  const U32 shifted = add_u32(as_u32(x), kOne - kSqrtHalf);
  const F32 n = sub(as_f32(add_u32(shift_right<23>(shifted), 0x4b000000u)), set1(kTwo23 + 127.0f));
  const F32 m = as_f32(add_u32(bit_and(shifted, kFraction), kSqrtHalf));
  const F32 t = div(sub(m, set1(1.0f)), add(m, set1(1.0f)));
  const F32 square = mul(t, t);
  F32 series = fma(set1(0.32059892f), square, set1(0.41219858f));  // 2 / (k log 2), k = 9, 7, 5, 3, 1
  series = fma(series, square, set1(0.57707802f));
  series = fma(series, square, set1(0.96179669f));
  series = fma(series, square, set1(2.88539008f));
  return add(fma(t, series, n), sub(x, x));
}

static inline float first_lane(F32 v) {
#if defined(__AVX512F__)
  return _mm512_cvtss_f32(v);
#elif defined(__AVX2__)
  return _mm256_cvtss_f32(v);
#else
  return v;
#endif
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
