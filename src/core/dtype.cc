#include "core/dtype.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/check.h"
#include "core/quant.h"

namespace headwater {
namespace {

template <typename T>
void decode_plain(const uint8_t* values, uint64_t count, float* out) {
  for (uint64_t i = 0; i < count; ++i, values += sizeof(T)) {
    T value;
    std::memcpy(&value, values, sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

template <float (*kToFloat)(uint16_t)>
void decode_half(const uint8_t* values, uint64_t count, float* out) {
  for (uint64_t i = 0; i < count; ++i) out[i] = kToFloat(static_cast<uint16_t>(values[2 * i] | values[2 * i + 1] << 8));
}

void decode_f8_e4m3(const uint8_t* values, uint64_t count, float* out) {
  for (uint64_t i = 0; i < count; ++i) out[i] = f8_e4m3_to_f32(values[i]);
}

struct Traits {
  DType dtype;
  const char* name;
  uint32_t elements;  // of a block
  uint32_t bytes;     // of a block
  bool is_weight;
  quant::Decode decode;
};

constexpr Traits kTraits[] = {
    {DType::kF32, "F32", 1, 4, true, decode_plain<float>},
    {DType::kF16, "F16", 1, 2, true, decode_half<f16_to_f32>},
    {DType::kBF16, "BF16", 1, 2, true, decode_half<bf16_to_f32>},
    {DType::kQ8_0, "Q8_0", 32, 34, true, quant::decode_q8_0},
    {DType::kQ4_1, "Q4_1", 32, 20, true, quant::decode_q4_1},
    {DType::kQ4_0, "Q4_0", 32, 18, true, quant::decode_q4_0},
    {DType::kF8E4M3, "F8_E4M3", 1, 1, false, decode_f8_e4m3},
    {DType::kQ5_0, "Q5_0", 32, 22, true, quant::decode_q5_0},
    {DType::kQ5_1, "Q5_1", 32, 24, true, quant::decode_q5_1},
    {DType::kQ2_K, "Q2_K", 256, 84, true, quant::decode_q2_k},
    {DType::kQ3_K, "Q3_K", 256, 110, true, quant::decode_q3_k},
    {DType::kQ4_K, "Q4_K", 256, 144, true, quant::decode_q4_k},
    {DType::kQ5_K, "Q5_K", 256, 176, true, quant::decode_q5_k},
    {DType::kQ6_K, "Q6_K", 256, 210, true, quant::decode_q6_k},
    {DType::kIQ4_NL, "IQ4_NL", 32, 18, true, quant::decode_iq4_nl},
    {DType::kIQ4_XS, "IQ4_XS", 256, 136, true, quant::decode_iq4_xs},
    {DType::kMXFP4, "MXFP4", 32, 17, true, quant::decode_mxfp4},
    {DType::kF64, "F64", 1, 8, false, decode_plain<double>},
    {DType::kI64, "I64", 1, 8, false, decode_plain<int64_t>},
    {DType::kI32, "I32", 1, 4, false, decode_plain<int32_t>},
    {DType::kI16, "I16", 1, 2, false, decode_plain<int16_t>},
    {DType::kI8, "I8", 1, 1, false, decode_plain<int8_t>},
    {DType::kU8, "U8", 1, 1, false, decode_plain<uint8_t>},
    {DType::kBool, "BOOL", 1, 1, false, decode_plain<uint8_t>},
};

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < std::size(kTraits); ++i) {
    if (kTraits[i].dtype != static_cast<DType>(i)) return false;
  }
  return std::size(kTraits) == kDTypeCount;
}
static_assert(rows_are_in_order(), "kTraits[dtype] is dtype's row");

const Traits& traits(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  check(index < std::size(kTraits), "unknown dtype");
  return kTraits[index];
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
bool is_weight_type(DType dtype) {
  return traits(dtype).is_weight;
}

std::optional<DType> dtype_named(std::string_view name) {
  const auto* found = std::ranges::find(kTraits, name, &Traits::name);
  return found == std::end(kTraits) ? std::nullopt : std::optional(found->dtype);
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
  traits(dtype).decode(static_cast<const uint8_t*>(row), elements / block_elements(dtype), out);
}

}  // namespace headwater
