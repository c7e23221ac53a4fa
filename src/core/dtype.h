// Element types of weights, KV pages and activations, and the scalar conversions between them.
//
// Quantised types are GGUF's, stored in blocks of 32 consecutive elements of a row (values are little-endian):
//   kQ8_0  34 bytes: f16 d, int8 q[32]                    x[i] = d * q[i]
//   kQ4_0  18 bytes: f16 d, uint8 q[16]                   x[i] = d * ((q[i] & 15) - 8),  x[i + 16] = d * ((q[i] >> 4) - 8)
//   kQ4_1  20 bytes: f16 d, f16 m, uint8 q[16]            x[i] = d * (q[i] & 15) + m,  x[i + 16] = d * (q[i] >> 4) + m
// Source: ggml/src/ggml-common.h of llama.cpp (block_q8_0, block_q4_0, block_q4_1).
// kF8E4M3 is an element of KV pages, whose scales lie beside it (ops/kv_pool.h); no weight has it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace headwater {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_1, kQ4_0, kF8E4M3 };

const char* to_string(DType dtype);
uint32_t block_elements(DType dtype);  // 1 for plain types
uint32_t block_bytes(DType dtype);     // bytes of one block (of one element for plain types)

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

// Dequantises `elements` (a multiple of block_elements) of one row; kF8E4M3 with a scale of 1.
void dequantize_row(DType dtype, const void* row, uint64_t elements, float* out);

}  // namespace headwater
