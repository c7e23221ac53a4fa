// Floats and random weights in any tensor type, for tests.
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

// Every type that a weight may have.
inline std::vector<DType> weight_types() {
  std::vector<DType> types;
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (is_weight_type(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

// Types that quantize_row() writes; values.size() is a multiple of block_elements(dtype).
inline std::vector<std::byte> quantize(DType dtype, std::span<const float> values) {
  std::vector<std::byte> bytes(row_bytes(dtype, values.size()));
  const Status status = quantize_row(dtype, values, bytes.data());
  check(status.is_ok(), status.message().c_str());
  return bytes;
}

// Where the blocks of a type that is not written have their f16 scales.
inline std::vector<size_t> scale_offsets(DType dtype) {
  switch (dtype) {
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    default:
      return {0};
  }
}

// Random bytes whose scales make the root of the mean square `deviation`. MXFP4, whose scale is a power of two, gets the
// one nearest below.
inline std::vector<std::byte> random_blocks(DType dtype, uint64_t count, float deviation, Random& random) {
  std::vector<std::byte> bytes(row_bytes(dtype, count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const auto set_scales = [&](float scale) {
    for (size_t block = 0; block < bytes.size(); block += block_bytes(dtype)) {
      if (dtype == DType::kMXFP4) {
        bytes[block] = static_cast<std::byte>(128 + std::ilogb(scale));
        continue;
      }
      for (const size_t offset : scale_offsets(dtype)) put_u16(&bytes[block + offset], f32_to_f16(scale));
    }
  };
  set_scales(1.0f);
  std::vector<float> values(count);
  dequantize_row(dtype, bytes.data(), count, values.data());
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  set_scales(deviation / static_cast<float>(std::sqrt(squares / static_cast<double>(count))));
  return bytes;
}

// Normal values of this deviation where the type is written, else blocks of such a size.
inline std::vector<std::byte> random_weight(DType dtype, uint64_t count, float deviation, Random& random) {
  constexpr DType kWritten[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
  if (std::ranges::find(kWritten, dtype) == std::end(kWritten)) return random_blocks(dtype, count, deviation, random);
  std::vector<float> values(count);
  for (float& value : values) value = deviation * random.normal();
  return quantize(dtype, values);
}

}  // namespace headwater::testing
