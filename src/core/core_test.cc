#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/core.h"

namespace headwater {
namespace {

TEST(Dtype, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), bits);
    }
  }
}

TEST(Dtype, HalfRoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);  // a tie goes down to even
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(f32_to_f16(1.0f + 0x3p-11f), 0x3c02);  // a tie goes up to even
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);  // half of the smallest subnormal: tie to zero
  EXPECT_EQ(f32_to_f16(-0x1.8p-25f), 0x8001);
}

TEST(Dtype, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

// The format's own definition, in doubles.
double f8_e4m3_value(uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15u);
  const double fraction = (code & 7u) / 8.0;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

TEST(Dtype, EveryF8E4M3CodeHasItsValueAndSurvivesTheRoundTrip) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = f8_e4m3_to_f32(static_cast<uint8_t>(code));
    if ((code & 0x7fu) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(f32_to_f8_e4m3(value), 0x7f) << code;
    } else {
      EXPECT_EQ(value, f8_e4m3_value(code)) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
      EXPECT_EQ(f32_to_f8_e4m3(value), code);
    }
  }
  EXPECT_EQ(f8_e4m3_to_f32(0x7e), kF8E4M3Max);
}

TEST(Dtype, F8E4M3RoundsToNearestEvenBetweenAllNeighboursAndSaturates) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const uint32_t sign : {0u, 0x80u}) {
    for (uint32_t code = 0; code < 0x7e; ++code) {
      const uint32_t low = sign | code, high = sign | (code + 1);
      const auto middle = static_cast<float>((f8_e4m3_value(low) + f8_e4m3_value(high)) / 2);
      EXPECT_EQ(f32_to_f8_e4m3(middle), code % 2 == 0 ? low : high) << code;
      EXPECT_EQ(f32_to_f8_e4m3(std::nextafter(middle, 0.0f)), low) << code;
      EXPECT_EQ(f32_to_f8_e4m3(std::nextafter(middle, 2 * middle)), high) << code;
    }
    const float one = sign == 0 ? 1.0f : -1.0f;
    for (const float beyond : {std::nextafter(448.0f, infinity), 464.0f, 480.0f, 1e30f, infinity}) {
      EXPECT_EQ(f32_to_f8_e4m3(one * beyond), sign | 0x7e) << beyond;
    }
    for (const float little : {0.0f, std::numeric_limits<float>::denorm_min(), 0x1p-11f}) {
      EXPECT_EQ(f32_to_f8_e4m3(one * little), sign) << little;
    }
  }
}

TEST(Dtype, DequantizesF8E4M3WithAScaleOfOne) {
  const uint8_t row[3] = {0x38, 0xb8, 0x01};
  float out[3];
  dequantize_row(DType::kF8E4M3, row, 3, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -1.0f);
  EXPECT_EQ(out[2], 0x1p-9f);
}

TEST(Dtype, DequantizesQ4_1AsTheFormatSays) {
  uint8_t block[20] = {};
  block[1] = 0x38;  // d = 0.5
  block[3] = 0xbc;  // m = -1
  block[4] = 0x3f;  // q[0] = 15, q[16] = 3
  float out[32];
  dequantize_row(DType::kQ4_1, block, 32, out);
  EXPECT_EQ(out[0], 6.5f);
  EXPECT_EQ(out[16], 0.5f);
  EXPECT_EQ(out[1], -1.0f);
}

TEST(Dtype, DequantizesQ4_0AsTheFormatSays) {
  uint8_t block[18] = {};
  block[1] = 0x38;  // d = 0.5
  block[2] = 0x3f;  // q[0] = 15, q[16] = 3
  float out[32];
  dequantize_row(DType::kQ4_0, block, 32, out);
  EXPECT_EQ(out[0], 3.5f);
  EXPECT_EQ(out[16], -2.5f);
  EXPECT_EQ(out[1], -4.0f);
}

TEST(Philox, MatchesThePublishedVectors) {  // Random123's kat_vectors
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Buffer, IsZeroedAlignedAndMoves) {
  auto buffer = Buffer::create(1 << 16);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment, 0u);
  for (uint8_t byte : buffer->as<uint8_t>()) ASSERT_EQ(byte, 0);
  std::byte* data = buffer->data();
  Buffer moved = std::move(*buffer);
  EXPECT_EQ(moved.data(), data);
}

TEST(Result, CarriesAValueOrAnError) {
  auto half = [](int value) -> Result<int> {
    if (value % 2 != 0) return error(ErrorCode::kInvalidArgument, "{} is odd; pass an even number", value);
    return value / 2;
  };
  auto quarter = [&](int value) -> Result<int> {
    HEADWATER_ASSIGN_OR_RETURN(int first, half(value));
    return half(first);
  };
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd; pass an even number");
}

}  // namespace
}  // namespace headwater
