#include "ops/kv_pool.h"

#include <gtest/gtest.h>

#include <array>

namespace headwater::ops {
namespace {

TEST(KvPool, BytesOfEightBitPagesCountTheScales) {
  const KvShape shape{
      .layers = 5, .kv_heads = 3, .head_dim = 64, .v_head_dim = 32, .page_size = 16, .dtype = DType::kF8E4M3};
  EXPECT_EQ(shape.bytes_token_layer(), 3u * (64 + 4 + 32 + 4));
  EXPECT_EQ(shape.bytes_page(), shape.bytes_token_layer() * 5 * 16);
  KvShape wide = shape;
  wide.dtype = DType::kBF16;
  EXPECT_EQ(wide.bytes_token_layer(), 3u * 2 * (64 + 32));
}

TEST(KvPool, TheScaleOfARowBringsItsGreatestElementTo448) {
  const std::array row{0.5f, -7.0f, 3.0f};
  EXPECT_EQ(f8_row_scale(row), 7.0f / 448);
  EXPECT_EQ(f32_to_f8_e4m3(-7.0f * (1 / f8_row_scale(row))), 0xfe);
}

TEST(KvPool, TheScaleIsNormalHoweverSmallTheRowAndNanWhereTheRowIsNotFinite) {
  const float least = std::numeric_limits<float>::min();
  EXPECT_EQ(f8_row_scale(std::array{0.0f, -0.0f}), least);
  EXPECT_EQ(f8_row_scale(std::array{std::numeric_limits<float>::denorm_min()}), least);
  EXPECT_TRUE(std::isnormal(1 / f8_row_scale(std::array{std::numeric_limits<float>::max()})));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(std::isnan(f8_row_scale(std::array{1.0f, bad, 2.0f})));
  }
}

}  // namespace
}  // namespace headwater::ops
