// Exact dot products of stored weight bytes with quantised activations, and the quantisation itself.
//
// A Bytes vector is kLanes features x 4 consecutive columns, unsigned. A Dots vector sums a block of 32 columns:
// dots_begin, eight times dots_add, dots_end gives int32. No step saturates, so every target gives the same integers:
//   VNNI     VPDPBUSD adds four u8 x s8 products to an int32 lane.
//   AVX2 and AVX-512 without VNNI: VPMADDUBSW adds two products in int16. Eight pairs of nibbles reach 8 * 2 * 15 * 127
//            = 30480 and need one widening; bytes are split in their low seven bits and the eighth,
//            at most 2 * 128 * 127 = 32512 each.
#pragma once

#include "backend/cpu/simd-inl.h"
#include "backend/cpu/step_kernels.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static constexpr uint32_t kWords = kBlockColumns / 4;  // Bytes vectors of a block, unpacked

static inline int32_t word_at(const int8_t* from) {
  int32_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return word;
}

#if defined(__AVX512F__)

using Bytes = __m512i;
using I32 = __m512i;

static inline Bytes load_bytes(const uint8_t* from) {
  return _mm512_loadu_si512(from);
}
static inline Bytes low_nibbles(Bytes v) {
  return _mm512_and_si512(v, _mm512_set1_epi8(15));
}
static inline Bytes high_nibbles(Bytes v) {
  return low_nibbles(_mm512_srli_epi16(v, 4));
}
static inline F32 to_f32(I32 v) {
  return _mm512_cvtepi32_ps(v);
}

#if defined(__AVX512VNNI__)

template <bool kNibbles>
static inline I32 dots_begin(int32_t bias) {
  return kNibbles ? _mm512_setzero_si512() : _mm512_set1_epi32(bias);
}
template <bool kNibbles>
static inline I32 dots_add(I32 dots, Bytes weight, const int8_t* x) {
  // The broadcast belongs to the instruction; GCC 12 would spend another one and a register on it.
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(dots) : "v"(weight), "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
  return dots;
}
template <bool kNibbles>
static inline I32 dots_end(I32 dots) {
  return dots;
}

#else

template <bool kNibbles>
static inline I32 dots_begin(int32_t bias) {
  return kNibbles ? _mm512_setzero_si512() : _mm512_set1_epi32(bias);
}
template <bool kNibbles>
static inline I32 dots_add(I32 dots, Bytes weight, const int8_t* x) {
  const I32 word = _mm512_set1_epi32(word_at(x));
  if constexpr (kNibbles) return _mm512_add_epi16(dots, _mm512_maddubs_epi16(weight, word));
  const I32 ones = _mm512_set1_epi16(1);
  const I32 low = _mm512_maddubs_epi16(_mm512_and_si512(weight, _mm512_set1_epi8(0x7f)), word);
  const I32 high = _mm512_maddubs_epi16(_mm512_and_si512(weight, _mm512_set1_epi8(-128)), word);
  return _mm512_add_epi32(dots, _mm512_add_epi32(_mm512_madd_epi16(low, ones), _mm512_madd_epi16(high, ones)));
}
template <bool kNibbles>
static inline I32 dots_end(I32 dots) {
  return kNibbles ? _mm512_madd_epi16(dots, _mm512_set1_epi16(1)) : dots;
}

#endif

#elif defined(__AVX2__)

using Bytes = __m256i;
using I32 = __m256i;

static inline Bytes load_bytes(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
static inline Bytes low_nibbles(Bytes v) {
  return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
static inline Bytes high_nibbles(Bytes v) {
  return low_nibbles(_mm256_srli_epi16(v, 4));
}
static inline F32 to_f32(I32 v) {
  return _mm256_cvtepi32_ps(v);
}

template <bool kNibbles>
static inline I32 dots_begin(int32_t bias) {
  return kNibbles ? _mm256_setzero_si256() : _mm256_set1_epi32(bias);
}
template <bool kNibbles>
static inline I32 dots_add(I32 dots, Bytes weight, const int8_t* x) {
  const I32 word = _mm256_set1_epi32(word_at(x));
  if constexpr (kNibbles) return _mm256_add_epi16(dots, _mm256_maddubs_epi16(weight, word));
  const I32 ones = _mm256_set1_epi16(1);
  const I32 low = _mm256_maddubs_epi16(_mm256_and_si256(weight, _mm256_set1_epi8(0x7f)), word);
  const I32 high = _mm256_maddubs_epi16(_mm256_and_si256(weight, _mm256_set1_epi8(-128)), word);
  return _mm256_add_epi32(dots, _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones)));
}
template <bool kNibbles>
static inline I32 dots_end(I32 dots) {
  return kNibbles ? _mm256_madd_epi16(dots, _mm256_set1_epi16(1)) : dots;
}

#else

using Bytes = uint32_t;
using I32 = int32_t;

static inline Bytes load_bytes(const uint8_t* from) {
  uint32_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return word;
}
static inline Bytes low_nibbles(Bytes v) {
  return v & 0x0f0f0f0fu;
}
static inline Bytes high_nibbles(Bytes v) {
  return low_nibbles(v >> 4);
}
static inline F32 to_f32(I32 v) {
  return static_cast<float>(v);
}

template <bool kNibbles>
static inline I32 dots_begin(int32_t bias) {
  return kNibbles ? 0 : bias;
}
template <bool kNibbles>
static inline I32 dots_add(I32 dots, Bytes weight, const int8_t* x) {
  for (uint32_t i = 0; i < 4; ++i) dots += static_cast<int32_t>(weight >> 8 * i & 255u) * x[i];
  return dots;
}
template <bool kNibbles>
static inline I32 dots_end(I32 dots) {
  return dots;
}

#endif

// The scales of a block whose largest magnitude has these bits. As an integer, NaN is above infinity and survives a
// maximum.
struct BlockScale {
  float scale;
  float inverse;  // 0: every q is 0
  bool finite;
};
static inline BlockScale block_scale(uint32_t bits_max) {
  float magnitude;
  __builtin_memcpy(&magnitude, &bits_max, sizeof magnitude);
  if (bits_max >= 0x7f800000u) return {magnitude, 0.0f, false};
  if (magnitude < 1e-30f) return {0.0f, 0.0f, true};  // 127 / magnitude would overflow
  return {magnitude / 127.0f, 127.0f / magnitude, true};
}

// Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
static constexpr float kRound = 12582912.0f;
static constexpr int32_t kRoundBits = 0x4b400000;

// q of one block, 0 where it is not finite; returns their sum.
#if defined(__AVX512F__)

static inline int32_t quantize_values(const float* x, int8_t* q, BlockScale* scale) {
  const F32 first = load(x), second = load(x + 16);
  const I32 magnitudes = _mm512_max_epu32(as_u32(abs(first)), as_u32(abs(second)));
  *scale = block_scale(_mm512_reduce_max_epu32(magnitudes));
  const F32 inverse = set1(scale->inverse);
  const __mmask16 keep = scale->finite ? 0xffff : 0;
  const auto rounded = [&](F32 values) {
    const I32 bits = as_u32(add(mul(values, inverse), set1(kRound)));
    return _mm512_maskz_sub_epi32(keep, bits, _mm512_set1_epi32(kRoundBits));
  };
  const I32 low = rounded(first), high = rounded(second);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(high));
  return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
}

#else

static inline int32_t quantize_values(const float* x, int8_t* q, BlockScale* scale) {
  uint32_t bits_max = 0;
  for (uint32_t i = 0; i < kBlockColumns; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x[i], sizeof bits);
    bits &= 0x7fffffffu;
    bits_max = bits > bits_max ? bits : bits_max;
  }
  *scale = block_scale(bits_max);
  int32_t sum = 0;
  for (uint32_t i = 0; i < kBlockColumns; ++i) {
    const float shifted = (scale->finite ? x[i] * scale->inverse : 0.0f) + kRound;
    int32_t bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    q[i] = static_cast<int8_t>(bits - kRoundBits);
    sum += bits - kRoundBits;
  }
  return sum;
}

#endif

static inline void quantize(const float* x, uint64_t columns, uint32_t row, PanelBlock* panel) {
  for (uint64_t k = 0; k < columns; k += kBlockColumns, ++panel) {
    BlockScale scale;
    const int32_t sum = quantize_values(x + k, panel->q[row], &scale);
    panel->scale[row] = scale.scale;
    panel->sum[row] = scale.finite ? scale.scale * static_cast<float>(sum) : scale.scale;
    panel->bias[row] = -128 * sum;
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
