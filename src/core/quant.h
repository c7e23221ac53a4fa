// Decoders of GGUF's quantised blocks to floats. Internal to the room: callers use dequantize_row() of dtype.h.
//
// Numbers are little-endian, d and m are f16, fields stand in the order named, nothing is padded. A nibble array of 16
// bytes holds element i in the low half of byte i and element i + 16 in the high half ("q[i]" below).
//
// Blocks of 32 elements:
//   Q4_0    18 bytes: d, nibbles                  x = d * (q - 8)
//   Q4_1    20 bytes: d, m, nibbles               x = d * q + m
//   Q5_0    22 bytes: d, u32 fifth bits, nibbles  x = d * (q - 16); bit i is the fifth bit of q[i]
//   Q5_1    24 bytes: d, m, u32 fifth bits, nibbles  x = d * q + m
//   Q8_0    34 bytes: d, i8 q[32]                 x = d * q
//   IQ4_NL  18 bytes: d, nibbles                  x = d * value[q], a table of 16 unequal steps
//   MXFP4   17 bytes: u8 e, nibbles               x = 2^(e - 128) * value[q], the doubled values of E2M1 (OCP Microscaling
//                                                 Formats 1.0)
// Super-blocks of 256 elements, in groups g with scales of their own:
//   Q2_K    84 bytes: u8 scales[16], 2-bit q, d, m   groups of 16: x = d * (scale & 15) * q - m * (scale >> 4)
//   Q3_K   110 bytes: third bits, 2-bit q, 6-bit scales[16], d   groups of 16: x = d * (scale - 32) * (q - 4)
//   Q4_K   144 bytes: d, m, 6-bit (scale, min)[8], nibbles       groups of 32: x = d * scale * q - m * min
//   Q5_K   176 bytes: the same with fifth bits before the nibbles
//   Q6_K   210 bytes: nibbles, 2-bit high parts, i8 scales[16], d   groups of 16: x = d * scale * (q - 32)
//   IQ4_XS 136 bytes: d, 6-bit scales[8], nibbles    groups of 32: x = d * (scale - 32) * value[q], IQ4_NL's table
//
// The order of the f32 operations is that of the Python package `gguf`, whose results these equal bit for bit.
// Source: ggml/src/ggml-common.h and ggml-quants.c of llama.cpp.
#pragma once

#include <cstdint>

namespace headwater::quant {

// `block` points to `blocks` blocks, unaligned; out has room for their elements.
using Decode = void (*)(const uint8_t* block, uint64_t blocks, float* out);

void decode_q4_0(const uint8_t* block, uint64_t blocks, float* out);
void decode_q4_1(const uint8_t* block, uint64_t blocks, float* out);
void decode_q5_0(const uint8_t* block, uint64_t blocks, float* out);
void decode_q5_1(const uint8_t* block, uint64_t blocks, float* out);
void decode_q8_0(const uint8_t* block, uint64_t blocks, float* out);
void decode_iq4_nl(const uint8_t* block, uint64_t blocks, float* out);
void decode_mxfp4(const uint8_t* block, uint64_t blocks, float* out);

void decode_q2_k(const uint8_t* block, uint64_t blocks, float* out);
void decode_q3_k(const uint8_t* block, uint64_t blocks, float* out);
void decode_q4_k(const uint8_t* block, uint64_t blocks, float* out);
void decode_q5_k(const uint8_t* block, uint64_t blocks, float* out);
void decode_q6_k(const uint8_t* block, uint64_t blocks, float* out);
void decode_iq4_xs(const uint8_t* block, uint64_t blocks, float* out);

extern const float kIq4Values[16];

}  // namespace headwater::quant
