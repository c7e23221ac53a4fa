#include "core/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace headwater {
namespace {

constexpr size_t kBlock = 32;

void put_u16(uint16_t bits, std::byte* at) {
  std::memcpy(at, &bits, sizeof(bits));
}

// 0 where 1 / d overflows: such a d is 0 as an f16.
float reciprocal(float d) {
  const float inverse = 1 / d;
  return std::isfinite(inverse) ? inverse : 0;
}

std::byte level(float quotient) {
  return static_cast<std::byte>(static_cast<uint8_t>(std::clamp(quotient, 0.0f, 15.0f)));
}

template <typename Level>
void put_nibbles(const float* x, std::byte* at, Level&& level_of) {
  for (size_t i = 0; i < kBlock / 2; ++i) at[i] = level_of(x[i]) | level_of(x[i + kBlock / 2]) << 4;
}

void quantize_q8_0(const float* x, std::byte* block) {
  float magnitude = 0;
  for (size_t i = 0; i < kBlock; ++i) magnitude = std::max(magnitude, std::fabs(x[i]));
  const float d = magnitude / 127, inverse = reciprocal(d);
  put_u16(f32_to_f16(d), block);
  for (size_t i = 0; i < kBlock; ++i) {
    const float q = std::clamp(std::round(x[i] * inverse), -128.0f, 127.0f);
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
  }
}

void quantize_q4_0(const float* x, std::byte* block) {
  const float extreme = *std::max_element(x, x + kBlock, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float d = extreme / -8, inverse = reciprocal(d);
  put_u16(f32_to_f16(d), block);
  put_nibbles(x, block + 2, [&](float value) { return level(value * inverse + 8.5f); });
}

void quantize_q4_1(const float* x, std::byte* block) {
  const auto [min, max] = std::minmax_element(x, x + kBlock);
  const float m = *min, d = (*max - m) / 15, inverse = reciprocal(d);
  put_u16(f32_to_f16(d), block);
  put_u16(f32_to_f16(m), block + 2);
  put_nibbles(x, block + 4, [&](float value) { return level((value - m) * inverse + 0.5f); });
}

// The largest magnitude whose block has scales that f16 holds.
float magnitude_max(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
      return std::numeric_limits<float>::max();
    case DType::kQ8_0:
      return 127 * 65504.0f;
    case DType::kQ4_0:
      return 8 * 65504.0f;
    default:
      return 65504.0f;
  }
}

}  // namespace

Status quantize_row(DType dtype, std::span<const float> values, std::byte* out) {
  check(values.size() % block_elements(dtype) == 0, "a row is whole blocks");
  const float max = magnitude_max(dtype);
  const auto wrong = std::ranges::find_if(values, [&](float value) { return !(std::fabs(value) <= max); });
  if (wrong != values.end()) {
    return error(ErrorCode::kInvalidArgument, "value {} is {}; the largest that {} holds is {:g}",
                 wrong - values.begin(), *wrong, to_string(dtype), max);
  }
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, values.data(), values.size_bytes());
      return {};
    case DType::kF16:
      for (size_t i = 0; i < values.size(); ++i) put_u16(f32_to_f16(values[i]), out + 2 * i);
      return {};
    case DType::kBF16:
      for (size_t i = 0; i < values.size(); ++i) put_u16(f32_to_bf16(values[i]), out + 2 * i);
      return {};
    default:
      break;
  }
  const auto encode = dtype == DType::kQ8_0   ? quantize_q8_0
                      : dtype == DType::kQ4_0 ? quantize_q4_0
                      : dtype == DType::kQ4_1 ? quantize_q4_1
                                              : nullptr;
  if (encode == nullptr) {
    return error(ErrorCode::kUnsupported, "{} is not written; use F32, F16, BF16, Q8_0, Q4_0 or Q4_1",
                 to_string(dtype));
  }
  for (size_t i = 0; i < values.size(); i += kBlock, out += block_bytes(dtype)) encode(&values[i], out);
  return {};
}

}  // namespace headwater
