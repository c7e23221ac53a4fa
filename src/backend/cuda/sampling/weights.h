// The arithmetic of a draw, one token at a time: to the bit what ops/logit_blocks.h does with 64. No product and sum may
// become one instruction.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/on_device.h"

namespace headwater::backend::cuda::sampling {

#ifdef __CUDA_ARCH__
__device__ inline float product(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline float sum(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ inline float difference(float a, float b) {
  return __fsub_rn(a, b);
}
__device__ inline float quotient(float a, float b) {
  return __fdiv_rn(a, b);
}
__device__ inline uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
__device__ inline float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ inline uint64_t rounded(float x) {
  return __float2ull_rn(x);
}
__device__ inline uint64_t high_product(uint64_t a, uint64_t b) {
  return __umul64hi(a, b);
}
__device__ inline uint64_t share_of(float share, uint64_t total) {
  return __double2ull_rz(__dmul_rn(share, __ull2double_rn(total)));
}
#else
inline float product(float a, float b) {
  return a * b;
}
inline float sum(float a, float b) {
  return a + b;
}
inline float difference(float a, float b) {
  return a - b;
}
inline float quotient(float a, float b) {
  return a / b;
}
inline uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint64_t rounded(float x) {
  return static_cast<uint64_t>(std::nearbyint(x));
}
inline uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline uint64_t share_of(float share, uint64_t total) {
  return static_cast<uint64_t>(static_cast<double>(share) * static_cast<double>(total));
}
#endif

// Logits as whole numbers in the same order; both zeros are one. A NaN, which biases can make of infinities, is below all.
inline constexpr uint32_t kKeyOfMinusInfinity = 0x007fffffu;
inline constexpr uint32_t kKeyOfLowest = kKeyOfMinusInfinity + 1;  // finite
HEADWATER_ON_DEVICE inline uint32_t key_of(float logit) {
  if (!(logit == logit)) return 0;
  const uint32_t bits = logit == 0 ? 0 : bits_of(logit);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
HEADWATER_ON_DEVICE inline float logit_of(uint32_t key) {
  return float_of(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// Logits as distances from the peak in units of the temperature.
struct Scale {
  float peak;
  float temperature;
  HEADWATER_ON_DEVICE float relative(float logit) const {
    const float distance = difference(logit, peak);
    return temperature == 1 ? distance : quotient(distance, temperature);
  }
};

inline constexpr float kRelativeMin =
    -32;  // who is further from the peak weighs less than half a unit, which is nothing

// exp(x) for x in [kRelativeMin, 0].
HEADWATER_ON_DEVICE inline float exp_of(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which lands in the low bits
  const float shifted = sum(product(x, 1.44269504f), kRound);
  const float n = difference(shifted, kRound);
  const float rest = sum(difference(x, product(n, 0.693359375f)), product(n, 2.12194440e-4f));
  float value = sum(product(rest, 1.0f / 5040), 1.0f / 720);
  value = sum(product(value, rest), 1.0f / 120);
  value = sum(product(value, rest), 1.0f / 24);
  value = sum(product(value, rest), 1.0f / 6);
  value = sum(product(value, rest), 0.5f);
  value = sum(product(value, rest), 1.0f);
  value = sum(product(value, rest), 1.0f);
  return float_of(bits_of(value) + (bits_of(shifted) << 23));
}

// In units of 2^-44 of the peak's weight.
HEADWATER_ON_DEVICE inline uint64_t weight_of(float relative) {
  return relative >= kRelativeMin ? rounded(product(exp_of(relative), 0x1p44f)) : 0;
}

// The least key of a logit that is `floor` or more, relatively. floor <= 0, so the peak's always is.
HEADWATER_ON_DEVICE inline uint32_t least_key(const Scale& scale, float floor) {
  uint32_t low = kKeyOfLowest, high = key_of(scale.peak);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (scale.relative(logit_of(middle)) >= floor) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// A key below those of all tokens that top_p can keep. What is below together weighs no more than may be left out, for
// each of these tokens weighs at most its part of that. The two hundredths are more than any rounding.
HEADWATER_ON_DEVICE inline uint32_t key_below_top_p(const Scale& scale, uint64_t left_out, uint32_t vocabulary) {
  const uint64_t part = left_out / vocabulary;
  if (part == 0) return kKeyOfLowest;
  const float relative = logf(static_cast<float>(part) * 0x1p-44f) - 0.02f;
  const float logit = scale.peak + relative * scale.temperature - 1e-6f * fabsf(scale.peak);
  const uint32_t key = key_of(logit);
  return key > kKeyOfLowest ? key : kKeyOfLowest;
}

struct Penalties {
  float repetition;  // 1: none
  float frequency;
  float presence;
  // Of a token that the prompt or the output holds; `generated`: how often the output does.
  HEADWATER_ON_DEVICE float apply(float logit, uint32_t generated) const {
    if (repetition != 1) logit = logit > 0 ? quotient(logit, repetition) : product(logit, repetition);
    const float presence_part = generated > 0 ? presence : 0.0f;
    return difference(logit, sum(product(frequency, static_cast<float>(generated)), presence_part));
  }
};

}  // namespace headwater::backend::cuda::sampling
