// 8-bit pages (kv_pages.h; the definition of their elements and scales is ops/kv_pool.h's). Rows are narrowed when they are
// appended; what attention reads is widened first, a cut at a time, to pages of bf16 in the worker's scratch.
#pragma once

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/vector_dots-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// Where the scales of the keys [page_size], then of the values, lie in a page's block.
static inline uint64_t f8_scales_offset(const LayerPages& layer) {
  return uint64_t{layer.page_size} * (layer.key_width + layer.value_width);
}

// e4m3 as bf16, times 2^-8: then the exponent's bias grows by 112, and its four bits meet none of 112's. Numbers below 2^-6
// have an exponent of 0 and no leading 1: these, few in a row, are looked up. Codes of NaN become 480 * 2^-8: their row's
// scale is NaN.
static constexpr float kWideUnit = 256.0f;
static constexpr uint16_t kWideExponent = 112 << 7;
static constexpr uint16_t kWideBits = 0x87f0;  // sign, and the code's seven other bits
static constexpr uint16_t kWideLittle[8] = {0, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860};  // i * 2^-17

// Where bf16 element `at` lies in 8-bit pages: of 64 elements, the first half in the high bytes of 32 words, the second in
// the low bytes. Half as many shifts widen them then.
static inline uint64_t f8_place(uint64_t at) {
  const uint64_t element = at % 64;
  return at - element + (element < 32 ? 2 * element + 1 : 2 * (element - 32));
}

// 64 codes into 64 elements.
static inline __attribute__((always_inline)) void widen_64(uint16_t* to, const uint8_t* from) {
#if defined(__AVX512F__)
  const __m512i bits = _mm512_set1_epi16(static_cast<int16_t>(kWideBits));
  const __m512i exponent = _mm512_set1_epi16(kWideExponent);
  const __m512i codes = _mm512_loadu_si512(from);
  const auto place = [&](__m512i shifted) {  // (shifted & bits) | exponent
    return _mm512_ternarylogic_epi32(shifted, bits, exponent, 0xea);
  };
  __m512i high = place(_mm512_srai_epi16(codes, 4));
  __m512i low = place(_mm512_srai_epi16(_mm512_slli_epi16(codes, 8), 4));
  if (__builtin_expect(_mm512_testn_epi8_mask(codes, _mm512_set1_epi8(0x78)) != 0, 0)) {
    const __m512i little = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kWideLittle)));
    const auto look_up = [&](__m512i placed, __m512i code) {
      const __mmask32 is_little = _mm512_testn_epi16_mask(code, _mm512_set1_epi16(0x78));
      const __m512i sign = _mm512_and_si512(placed, _mm512_set1_epi16(-0x8000));
      const __m512i found = _mm512_or_si512(sign, _mm512_permutexvar_epi16(code, little));
      return _mm512_mask_blend_epi16(is_little, placed, found);
    };
    high = look_up(high, _mm512_srli_epi16(codes, 8));
    low = look_up(low, codes);
  }
  _mm512_storeu_si512(to, high);
  _mm512_storeu_si512(to + 32, low);
#else
  bool has_little = false;
#if defined(__AVX2__)
  const __m256i bits = _mm256_set1_epi16(static_cast<int16_t>(kWideBits));
  const __m256i exponent = _mm256_set1_epi16(kWideExponent);
  for (uint32_t i = 0; i < 32; i += 16) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * i));
    const auto put = [&](uint16_t* at, __m256i shifted) {
      const __m256i placed = _mm256_or_si256(_mm256_and_si256(shifted, bits), exponent);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), placed);
    };
    put(to + i, _mm256_srai_epi16(codes, 4));
    put(to + 32 + i, _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 4));
    const __m256i large = _mm256_and_si256(codes, _mm256_set1_epi8(0x78));
    has_little |= _mm256_movemask_epi8(_mm256_cmpeq_epi8(large, _mm256_setzero_si256())) != 0;
  }
#else
  const auto place = [](uint32_t code) {
    return static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 4 | kWideExponent);
  };
  for (uint32_t i = 0; i < 32; ++i) {
    to[i] = place(from[2 * i + 1]);
    to[32 + i] = place(from[2 * i]);
  }
  for (uint32_t i = 0; i < 64; ++i) has_little |= (from[i] & 0x78u) == 0;
#endif
  for (uint32_t i = 0; has_little && i < 64; ++i) {
    const uint32_t code = from[f8_place(i)];
    if ((code & 0x78u) == 0) to[i] = static_cast<uint16_t>((code & 0x80u) << 8 | kWideLittle[code & 7u]);
  }
#endif
}

// `count` is a multiple of 64. Meanwhile as many bytes are fetched from `next`: pages are short, and the processor's own
// fetching begins anew in each.
static inline void widen(uint16_t* to, const uint8_t* from, uint64_t count, const uint8_t* next) {
  for (uint64_t i = 0; i < count; i += 64) {
    __builtin_prefetch(next + i);
    widen_64(to + i, from + i);
  }
}

// The first `slots` (a multiple of 16) keys of a page, and the same of value columns [column, column + columns), multiples of
// 16, in the layout of a bf16 page with as many columns. Slots that hold no token give some finite numbers.
static inline void widen_keys(const LayerPages& layer, const std::byte* block, uint32_t slots, uint16_t* to,
                              const std::byte* next) {
  widen(to, reinterpret_cast<const uint8_t*>(block), uint64_t{slots} * layer.key_width,
        reinterpret_cast<const uint8_t*>(next));
}
static inline void widen_values(const LayerPages& layer, const std::byte* block, uint32_t column, uint32_t columns,
                                uint32_t slots, uint16_t* to, const std::byte* next) {
  const uint64_t offset = uint64_t{layer.page_size} * (layer.key_width + column);
  const auto* values = reinterpret_cast<const uint8_t*>(block) + offset;
  const auto* next_values = reinterpret_cast<const uint8_t*>(next) + offset;
  for (uint64_t at = 0; at < uint64_t{layer.page_size} * columns; at += uint64_t{layer.page_size} * kColumnsTogether) {
    widen(to + at, values + at, uint64_t{slots} * kColumnsTogether, next_values + at);
  }
}

// The scales of the first `count` slots in units of wide elements, and zeros up to a multiple of 16.
static inline void copy_scales(const float* from, uint32_t count, float* to) {
  for (uint32_t i = 0; i < count; i += kLanes) store(to + i, mul(load(from + i), set1(kWideUnit)));
  for (uint32_t i = count; i % 16 != 0; ++i) to[i] = 0;
}

// NaN unless all of the row is finite: x - x is NaN for NaN and the infinities, and else 0.
static inline float f8_scale(const float* row, uint32_t width) {
  F32 greatest = zero();
  F32 not_finite = zero();
  for (uint32_t i = 0; i < width; i += kLanes) {
    const F32 v = load(row + i);
    greatest = max(greatest, abs(v));
    not_finite = add(not_finite, sub(v, v));
  }
  const float scale = reduce_max(greatest) / 448.0f;
  return (scale > 0x1p-126f ? scale : 0x1p-126f) + reduce_add(not_finite);
}

// Codes of a row whose scale is given. Adding and subtracting 2^20 times a number's power of two rounds it to four
// significant bits, and below 2^-6 to a multiple of 2^-9; times 2^-120 its bits are those of the code.
static inline void narrow_f8(uint8_t* to, const float* row, uint32_t width, float scale) {
  const F32 inverse = set1(1.0f / scale);
  for (uint32_t i = 0; i < width; i += kLanes) {
    const F32 v = mul(load(row + i), inverse);
    const F32 size = min(abs(v), set1(448.0f));
    const F32 power = as_f32(bit_and(as_u32(max(size, set1(0x1p-6f))), 0x7f800000u));
    const F32 large = mul(power, set1(0x1p20f));
    float rounded[kLanes], signs[kLanes];
    store(rounded, mul(sub(add(size, large), large), set1(0x1p-120f)));
    store(signs, v);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      uint32_t magnitude, sign;
      __builtin_memcpy(&magnitude, &rounded[lane], sizeof magnitude);
      __builtin_memcpy(&sign, &signs[lane], sizeof sign);
      to[i + lane] = static_cast<uint8_t>((sign >> 24 & 0x80u) | magnitude >> 20);
    }
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
