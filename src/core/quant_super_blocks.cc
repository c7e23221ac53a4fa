// Super-blocks of 256 elements. Within one, element e of the 2-bit and 4-bit arrays lies as the loops below say: halves
// of 128 elements (h), then planes of bits (j), then bytes (i), so that a plane is one shift of consecutive bytes.
#include "core/dtype.h"
#include "core/quant.h"

namespace headwater::quant {
namespace {

constexpr int kElements = 256;

float f16_at(const uint8_t* bytes) {
  return f16_to_f32(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

// Scale and minimum of group g of 8, packed in 12 bytes: the low six bits of bytes g and g + 4 for the first four
// groups; for the others four bits each of byte g + 4, their upper two bits above those of the first four.
struct ScaleAndMin {
  float scale;
  float min;
};
ScaleAndMin scale_and_min(const uint8_t* packed, int g) {
  if (g < 4) return {static_cast<float>(packed[g] & 63), static_cast<float>(packed[g + 4] & 63)};
  return {static_cast<float>((packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4),
          static_cast<float>((packed[g + 4] >> 4) | (packed[g] >> 6) << 4)};
}

// Scale g of Q3_K's 16, less 32: four low bits in the nibbles of 8 bytes, two upper bits in the four that follow.
float q3_scale(const uint8_t* packed, int g) {
  const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
  const int high = packed[8 + g % 4] >> (2 * (g / 4)) & 3;
  return static_cast<float>((low | high << 4) - 32);
}

// Q4_K, and with fifth bits Q5_K: bit g of byte i belongs to element i of group g. bits may be null.
void decode_scaled_nibbles(const uint8_t* header, const uint8_t* bits, const uint8_t* nibbles, float* out) {
  const float d = f16_at(header), m = f16_at(header + 2);
  for (int g = 0; g < 8; ++g, out += 32) {
    const ScaleAndMin of_group = scale_and_min(header + 4, g);
    const float scale = d * of_group.scale, min = m * of_group.min;
    const uint8_t* plane = nibbles + g / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int fifth = bits == nullptr ? 0 : (bits[i] >> g & 1) << 4;
      out[i] = scale * static_cast<float>((plane[i] >> (g % 2 * 4) & 15) | fifth) - min;
    }
  }
}

}  // namespace

void decode_q2_k(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 84, out += kElements) {
    const uint8_t *scales = block, *quants = block + 16;
    const float d = f16_at(block + 80), m = f16_at(block + 82);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * static_cast<float>(scales[g] & 15), min = m * static_cast<float>(scales[g] >> 4);
      const int h = g / 8, j = g % 8 / 2;
      const uint8_t* plane = quants + h * 32 + g % 2 * 16;
      for (int i = 0; i < 16; ++i) out[g * 16 + i] = scale * static_cast<float>(plane[i] >> (2 * j) & 3) - min;
    }
  }
}

void decode_q3_k(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 110, out += kElements) {
    const uint8_t *third_bits = block, *quants = block + 32, *scales = block + 96;
    const float d = f16_at(block + 108);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * q3_scale(scales, g);
      const int h = g / 8, j = g % 8 / 2, first = g % 2 * 16;
      for (int i = first; i < first + 16; ++i) {
        const int q = (quants[h * 32 + i] >> (2 * j) & 3) | (third_bits[i] >> (4 * h + j) & 1) << 2;
        out[(h * 4 + j) * 32 + i] = scale * static_cast<float>(q - 4);
      }
    }
  }
}

void decode_q4_k(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 144, out += kElements) {
    decode_scaled_nibbles(block, nullptr, block + 16, out);
  }
}

void decode_q5_k(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 176, out += kElements) {
    decode_scaled_nibbles(block, block + 16, block + 48, out);
  }
}

void decode_q6_k(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 210, out += kElements) {
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    const float d = f16_at(block + 208);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(scales[g]));
      const int h = g / 8, j = g % 8 / 2;
      for (int e = g % 8 * 16; e < g % 8 * 16 + 16; ++e) {  // of the half
        const int nibble = low[h * 64 + e % 64] >> (e / 64 * 4) & 15;
        const int q = nibble | (high[h * 32 + e % 32] >> (2 * j) & 3) << 4;
        out[h * 128 + e] = scale * static_cast<float>(q - 32);
      }
    }
  }
}

void decode_iq4_xs(const uint8_t* block, uint64_t blocks, float* out) {
  for (uint64_t b = 0; b < blocks; ++b, block += 136, out += kElements) {
    const float d = f16_at(block);
    const int scales_high = block[2] | block[3] << 8;
    for (int g = 0; g < 8; ++g) {
      const int low = block[4 + g / 2] >> (g % 2 * 4) & 15;
      const float scale = d * static_cast<float>((low | (scales_high >> (2 * g) & 3) << 4) - 32);
      const uint8_t* nibbles = block + 8 + g * 16;
      for (int i = 0; i < 16; ++i) {
        out[g * 32 + i] = scale * kIq4Values[nibbles[i] & 15];
        out[g * 32 + i + 16] = scale * kIq4Values[nibbles[i] >> 4];
      }
    }
  }
}

}  // namespace headwater::quant
