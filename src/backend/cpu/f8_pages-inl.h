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

// e4m3 as bf16: exponent and fraction move to their places and the exponent's bias grows by 120. Numbers below 2^-6 have
// no exponent yet: what is added to those is looked up. kLittleBias[i]: the bits of the bf16 i * 2^-9, less i << 4. Codes
// of NaN become 480: their row's scale is NaN.
static constexpr uint16_t kBias = 120 << 7;
static constexpr uint16_t kLittleBias[8] = {0, 0x3af0, 0x3b60, 0x3b90, 0x3bc0, 0x3bd0, 0x3be0, 0x3bf0};

// `count` codes, a multiple of 32.
static inline void widen(uint16_t* to, const uint8_t* from, uint64_t count) {
#if defined(__AVX512F__)
  const __m512i bias = _mm512_set1_epi16(kBias);
  const __m512i little = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kLittleBias)));
  for (uint64_t i = 0; i < count; i += 32) {
    const __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    const __mmask32 is_little = _mm512_testn_epi16_mask(code, _mm512_set1_epi16(0x78));
    const __m512i placed = _mm512_and_si512(_mm512_slli_epi16(code, 4), _mm512_set1_epi16(-0x7810));  // 0x87f0
    const __m512i added = _mm512_mask_permutexvar_epi16(bias, is_little, code, little);
    _mm512_storeu_si512(to + i, _mm512_add_epi16(placed, added));
  }
#elif defined(__AVX2__)
  const __m256i bias = _mm256_set1_epi16(kBias);
  const __m256i little = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kLittleBias)));
  for (uint64_t i = 0; i < count; i += 16) {
    const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
    const __m256i placed = _mm256_and_si256(_mm256_slli_epi16(code, 4), _mm256_set1_epi16(-0x7810));
    // The two bytes of entry m of the table: 2 m and 2 m + 1. Of a magnitude of 8 or more the result is not used.
    const __m256i index =
        _mm256_add_epi16(_mm256_mullo_epi16(magnitude, _mm256_set1_epi16(0x0202)), _mm256_set1_epi16(0x0100));
    const __m256i is_little = _mm256_cmpgt_epi16(_mm256_set1_epi16(8), magnitude);
    const __m256i added = _mm256_blendv_epi8(bias, _mm256_shuffle_epi8(little, index), is_little);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_add_epi16(placed, added));
  }
#else
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = from[i] & 0x7fu;
    const uint32_t added = magnitude < 8 ? kLittleBias[magnitude] : kBias;
    to[i] = static_cast<uint16_t>((from[i] & 0x80u) << 8 | ((magnitude << 4) + added));
  }
#endif
}

struct WidePage {
  uint16_t* keys;
  uint16_t* values;
  float* key_scales;
  float* value_scales;
};

// The first `count` keys and values of a page, in a layout as of bf16 pages. What follows them up to a multiple of 16 is
// some finite number, with a scale of 0 for values.
static inline void widen_page(const LayerPages& layer, const std::byte* block, uint32_t count, const WidePage& to) {
  const auto* keys = reinterpret_cast<const uint8_t*>(block);
  const uint8_t* values = keys + uint64_t{layer.page_size} * layer.key_width;
  const uint32_t slots = (count + 15) / 16 * 16;
  widen(to.keys, keys, uint64_t{slots} * layer.key_width);
  const uint64_t group = uint64_t{layer.page_size} * kColumnsTogether;  // columns that lie together
  for (uint64_t at = 0; at < uint64_t{layer.page_size} * layer.value_width; at += group) {
    widen(to.values + at, values + at, uint64_t{slots} * kColumnsTogether);
  }
  const auto* scales = reinterpret_cast<const float*>(block + f8_scales_offset(layer));
  __builtin_memcpy(to.key_scales, scales, slots * sizeof(float));
  __builtin_memcpy(to.value_scales, scales + layer.page_size, count * sizeof(float));
  __builtin_memset(to.value_scales + count, 0, (slots - count) * sizeof(float));
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
