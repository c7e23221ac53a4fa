// Element types of weights, KV pages and activations, and the scalar conversions between them.
//
// Quantised types are GGUF's: blocks of 32 or 256 consecutive elements of a row (quant.h has their layouts).
// kF8E4M3 is an element of KV pages, whose scales lie beside it (ops/kv_pool.h), and of weights in a file, which become
// BF16 when they are read (model/f8_weight.h). The types from kF64 on are those of buffers that some files carry beside
// their weights: they can be listed and read, and no product takes them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headwater {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_1,
  kQ4_0,
  kF8E4M3,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
};
inline constexpr size_t kDTypeCount = 24;

const char* to_string(DType dtype);
uint32_t block_elements(DType dtype);  // 1 for plain types
uint32_t block_bytes(DType dtype);     // bytes of one block (of one element for plain types)
bool is_weight_type(DType dtype);      // whether products take it

// By the name that to_string() gives: GGUF's and safetensors' own.
std::optional<DType> dtype_named(std::string_view name);

// Bytes of a row of `elements`; `elements` is a multiple of block_elements(dtype).
inline size_t row_bytes(DType dtype, uint64_t elements) {
  return static_cast<size_t>(elements / block_elements(dtype) * block_bytes(dtype));
}

// IEEE 754 binary16 and bfloat16 as their bit patterns. To narrow types: round to nearest, ties to even; NaN stays NaN.
inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t f32_to_bf16(float value);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

// FP8 E4M3 of the Open Compute Project ("OCP 8-bit Floating Point Specification", 2023) as its bit pattern: sign, 4 bits
// of exponent (bias 7), 3 of fraction; subnormals are multiples of 2^-9; no infinities; 0x7f and 0xff are NaN. To it:
// round to nearest, ties to even; beyond 448, infinity included, 448; NaN becomes 0x7f whatever its sign.
inline constexpr float kF8E4M3Max = 448.0f;
float f8_e4m3_to_f32(uint8_t bits);
uint8_t f32_to_f8_e4m3(float value);

// Dequantises `elements` (a multiple of block_elements) of one row, any type; kF8E4M3 with a scale of 1.
void dequantize_row(DType dtype, const void* row, uint64_t elements, float* out);

}  // namespace headwater
