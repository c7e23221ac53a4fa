// Blocks of 32 elements.
#include <bit>
#include <cstring>

#include "core/dtype.h"
#include "core/quant.h"

namespace headwater::quant {
namespace {

constexpr int kHalf = 16;

float f16_at(const uint8_t* bytes) {
  return f16_to_f32(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

// out[i] = value(q, i) for the 32 nibbles of 16 bytes.
template <typename Value>
void decode_nibbles(const uint8_t* nibbles, float* out, Value value) {
  for (int i = 0; i < kHalf; ++i) {
    out[i] = value(nibbles[i] & 15, i);
    out[i + kHalf] = value(nibbles[i] >> 4, i + kHalf);
  }
}

uint32_t u32_at(const uint8_t* bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

int with_fifth_bit(int q, uint32_t bits, int i) {
  return q | static_cast<int>(bits >> i & 1u) << 4;
}

// 2^(e - 128): half of what E8M0 says, as the table below holds doubled values.
float half_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (uint32_t{e} - 1) << 23);
}

constexpr float kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace

const float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void decode_q4_0(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 18, out += 32) {
    const float d = f16_at(block);
    decode_nibbles(block + 2, out, [&](int q, int) { return d * static_cast<float>(q - 8); });
  }
}

void decode_q4_1(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 20, out += 32) {
    const float d = f16_at(block), m = f16_at(block + 2);
    decode_nibbles(block + 4, out, [&](int q, int) { return d * static_cast<float>(q) + m; });
  }
}

void decode_q5_0(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 22, out += 32) {
    const float d = f16_at(block);
    const uint32_t bits = u32_at(block + 2);
    decode_nibbles(block + 6, out,
                   [&](int q, int i) { return d * static_cast<float>(with_fifth_bit(q, bits, i) - 16); });
  }
}

void decode_q5_1(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 24, out += 32) {
    const float d = f16_at(block), m = f16_at(block + 2);
    const uint32_t bits = u32_at(block + 4);
    decode_nibbles(block + 8, out,
                   [&](int q, int i) { return d * static_cast<float>(with_fifth_bit(q, bits, i)) + m; });
  }
}

void decode_q8_0(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 34, out += 32) {
    const float d = f16_at(block);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

void decode_iq4_nl(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 18, out += 32) {
    const float d = f16_at(block);
    decode_nibbles(block + 2, out, [&](int q, int) { return d * kIq4Values[q]; });
  }
}

void decode_mxfp4(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 17, out += 32) {
    const float d = half_e8m0(block[0]);
    decode_nibbles(block + 1, out, [&](int q, int) { return d * kE2M1Doubled[q]; });
  }
}

}  // namespace headwater::quant
