// Floats into any tensor type, by the plain round-to-nearest recipe: for tests, which need valid blocks, not the best.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/core.h"

namespace headwater::testing {

inline void put_u16(std::byte* at, uint16_t bits) {
  std::memcpy(at, &bits, sizeof(bits));
}

inline void quantize_block_q8_0(std::span<const float> values, std::byte* block) {
  float magnitude = 0;
  for (const float value : values) magnitude = std::max(magnitude, std::fabs(value));
  const float d = f16_to_f32(f32_to_f16(magnitude / 127));
  put_u16(block, f32_to_f16(d));
  for (size_t i = 0; i < 32; ++i) {
    const float q = d == 0 ? 0 : std::clamp(std::round(values[i] / d), -127.0f, 127.0f);
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
  }
}

// d = the value of largest magnitude / -8, as that value then is the level 0 = -8.
inline void quantize_block_q4_0(std::span<const float> values, std::byte* block) {
  float extreme = 0;
  for (const float value : values) extreme = std::fabs(value) > std::fabs(extreme) ? value : extreme;
  const float d = f16_to_f32(f32_to_f16(extreme / -8));
  put_u16(block, f32_to_f16(d));
  const auto level = [&](float value) {
    return d == 0 ? 8u : static_cast<unsigned>(std::clamp(std::round(value / d) + 8, 0.0f, 15.0f));
  };
  for (size_t i = 0; i < 16; ++i) {
    block[2 + i] = static_cast<std::byte>(level(values[i]) | level(values[i + 16]) << 4);
  }
}

inline void quantize_block_q4_1(std::span<const float> values, std::byte* block) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float d = f16_to_f32(f32_to_f16((*high - *low) / 15));
  const float m = f16_to_f32(f32_to_f16(*low));
  put_u16(block, f32_to_f16(d));
  put_u16(block + 2, f32_to_f16(m));
  const auto level = [&](float value) {
    return d == 0 ? 0u : static_cast<unsigned>(std::clamp(std::round((value - m) / d), 0.0f, 15.0f));
  };
  for (size_t i = 0; i < 16; ++i) {
    block[4 + i] = static_cast<std::byte>(level(values[i]) | level(values[i + 16]) << 4);
  }
}

// values.size() is a multiple of block_elements(dtype).
inline std::vector<std::byte> quantize(DType dtype, std::span<const float> values) {
  const size_t elements = block_elements(dtype);
  check(values.size() % elements == 0, "quantize: the values are not whole blocks");
  std::vector<std::byte> bytes(row_bytes(dtype, values.size()));
  std::byte* block = bytes.data();
  for (size_t i = 0; i < values.size(); i += elements, block += block_bytes(dtype)) {
    switch (dtype) {
      case DType::kF32:
        std::memcpy(block, &values[i], sizeof(float));
        break;
      case DType::kF16:
        put_u16(block, f32_to_f16(values[i]));
        break;
      case DType::kBF16:
        put_u16(block, f32_to_bf16(values[i]));
        break;
      case DType::kQ8_0:
        quantize_block_q8_0(values.subspan(i, 32), block);
        break;
      case DType::kQ4_1:
        quantize_block_q4_1(values.subspan(i, 32), block);
        break;
      case DType::kQ4_0:
        quantize_block_q4_0(values.subspan(i, 32), block);
        break;
      case DType::kF8E4M3:
        check(false, "no weight has this type");
    }
  }
  return bytes;
}

}  // namespace headwater::testing
