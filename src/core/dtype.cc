#include "core/dtype.h"

#include <cmath>
#include <cstring>
#include <iterator>

#include "core/check.h"

namespace headwater {
namespace {

struct Traits {
  const char* name;
  uint32_t elements;
  uint32_t bytes;
};

constexpr Traits kTraits[] = {{"F32", 1, 4},    {"F16", 1, 2},    {"BF16", 1, 2},   {"Q8_0", 32, 34},
                              {"Q4_1", 32, 20}, {"Q4_0", 32, 18}, {"F8_E4M3", 1, 1}};

const Traits& traits(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  check(index < std::size(kTraits), "unknown dtype");
  return kTraits[index];
}

uint16_t read_u16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

void dequantize_q8_0(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 34, out += 32) {
    const float d = f16_to_f32(read_u16(block));
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

void dequantize_q4_0(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 18, out += 32) {
    const float d = f16_to_f32(read_u16(block));
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
      out[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
    }
  }
}

void dequantize_q4_1(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 20, out += 32) {
    const float d = f16_to_f32(read_u16(block));
    const float m = f16_to_f32(read_u16(block + 2));
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(block[4 + i] & 15) + m;
      out[i + 16] = d * static_cast<float>(block[4 + i] >> 4) + m;
    }
  }
}

}  // namespace

const char* to_string(DType dtype) {
  return traits(dtype).name;
}
uint32_t block_elements(DType dtype) {
  return traits(dtype).elements;
}
uint32_t block_bytes(DType dtype) {
  return traits(dtype).bytes;
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31u;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520 rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal half: let the float adder round to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

// Exponent and fraction have the places of a float whose bias is 120 smaller: moved there, a number is 2^-120 of itself,
// subnormals included.
float f8_e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  return std::bit_cast<float>(sign | magnitude << 20) * 0x1p120f;
}

uint8_t f32_to_f8_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7e);  // 448
  if (magnitude < 0x3c800000u) {  // below 2^-6: let the float adder round to a multiple of 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  return static_cast<uint8_t>(sign | (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20);
}

void dequantize_row(DType dtype, const void* row, uint64_t elements, float* out) {
  check(elements % block_elements(dtype) == 0, "a row is whole blocks");
  const auto* bytes = static_cast<const uint8_t*>(row);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, row, elements * sizeof(float));
      return;
    case DType::kF16:
      for (uint64_t i = 0; i < elements; ++i) out[i] = f16_to_f32(read_u16(bytes + 2 * i));
      return;
    case DType::kBF16:
      for (uint64_t i = 0; i < elements; ++i) out[i] = bf16_to_f32(read_u16(bytes + 2 * i));
      return;
    case DType::kF8E4M3:
      for (uint64_t i = 0; i < elements; ++i) out[i] = f8_e4m3_to_f32(bytes[i]);
      return;
    case DType::kQ8_0:
      dequantize_q8_0(bytes, elements / 32, out);
      return;
    case DType::kQ4_1:
      dequantize_q4_1(bytes, elements / 32, out);
      return;
    case DType::kQ4_0:
      dequantize_q4_0(bytes, elements / 32, out);
      return;
  }
}

}  // namespace headwater
