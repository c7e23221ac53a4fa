#include "backend/cpu/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/dense_test_kit.h"

namespace headwater::backend::cpu {
namespace {

ops::Matrix matrix(std::vector<float>& values, uint32_t rows, uint32_t columns) {
  return {values.data(), rows, columns, values.size() / rows};
}

// What a product reads: x itself for plain weights, its quantised values for the others.
std::vector<double> activations_read(const std::vector<float>& x, uint32_t rows, uint32_t columns, bool quantized) {
  std::vector<double> read(x.begin(), x.end());
  if (!quantized) return read;
  std::vector<PanelBlock> panel(columns / kBlockColumns);
  for (uint32_t r = 0; r < rows; ++r) {
    step_kernels(Target::kScalar).quantize(&x[uint64_t{r} * columns], columns, r % kPanelRows, panel.data());
    for (uint32_t k = 0; k < columns; ++k) {
      const PanelBlock& block = panel[k / kBlockColumns];
      read[uint64_t{r} * columns + k] =
          double{block.scale[r % kPanelRows]} * block.q[r % kPanelRows][k % kBlockColumns];
    }
  }
  return read;
}

struct Case {
  Target target;
  DType dtype;
};

class ProductsOf : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<ThreadPool> pool_ = std::move(ThreadPool::create(2)).value();
  Products products_{step_kernels(GetParam().target), *pool_};
};

// The bound is the rounding of a float sum of `columns` terms, relative to the sum of their magnitudes (|m| + |d q| of
// a Q4_1 term is below three times the largest value of its row).
TEST_P(ProductsOf, AgreeWithDoubleUpToTheRoundingOfTheSum) {
  for (const auto& [rows, features, columns_min] : {std::tuple{1u, 16u, 32u},
                                                    {3u, 7u, 96u},
                                                    {5u, 17u, 32u},
                                                    {16u, 16u, 64u},
                                                    {21u, 20u, 96u},
                                                    {8u, 49u, 576u},
                                                    {13u, 33u, 1536u}}) {
    const uint32_t columns = whole_blocks(GetParam().dtype, columns_min);
    const FileWeight file(GetParam().dtype, features, columns, features);
    const auto weight = std::move(pack(file.view, *pool_)).value();
    std::vector<float> x = random_values(uint64_t{rows} * columns, columns);
    const std::vector<float> bias = random_values(features, 3);
    std::vector<float> out(uint64_t{rows} * features, 99.0f);
    ASSERT_TRUE(products_.reserve(rows, columns, columns));
    const ops::Product product{weight.get(), matrix(out, rows, features), bias.data()};
    products_.run({matrix(x, rows, columns), {&product, 1}});

    const std::vector<double> read = activations_read(x, rows, columns, weight->is_quantized());
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t n = 0; n < features; ++n) {
        double expected = bias[n], magnitude = std::fabs(bias[n]), largest = 0;
        for (uint32_t k = 0; k < columns; ++k)
          largest = std::max(largest, std::fabs(double{file.values[n * columns + k]}));
        for (uint32_t k = 0; k < columns; ++k) {
          expected += double{file.values[n * columns + k]} * read[r * columns + k];
          magnitude += 3 * largest * std::fabs(read[r * columns + k]);
        }
        ASSERT_NEAR(out[r * features + n], expected, 4e-7 * magnitude) << r << " " << n << " of " << columns;
      }
    }
  }
}

// One, two, three and five blocks: fewer and more than the stages of the tile loop are apart.
TEST_P(ProductsOf, GiveARowTheSameBitsInEveryBatch) {
  constexpr uint32_t kFeatures = 40, kRows = 33;
  for (const uint32_t columns_min : {32u, 64u, 96u, 160u}) {
    const uint32_t columns = whole_blocks(GetParam().dtype, columns_min);
    const FileWeight file(GetParam().dtype, kFeatures, columns, 5);
    const auto weight = std::move(pack(file.view, *pool_)).value();
    std::vector<float> x = random_values(kRows * columns, 6);
    std::vector<float> alone(kRows * kFeatures), together(kRows * kFeatures);
    ASSERT_TRUE(products_.reserve(kRows, columns, columns));
    for (uint32_t r = 0; r < kRows; ++r) {
      const ops::Product product{weight.get(), {&alone[r * kFeatures], 1, kFeatures, kFeatures}};
      products_.run({{&x[r * columns], 1, columns, columns}, {&product, 1}});
    }
    for (uint32_t rows = 1; rows <= kRows; ++rows) {
      const ops::Product product{weight.get(), {together.data(), rows, kFeatures, kFeatures}};
      products_.run({{x.data(), rows, columns, columns}, {&product, 1}});
      ASSERT_EQ(std::memcmp(alone.data(), together.data(), rows * kFeatures * sizeof(float)), 0) << rows;
    }
  }
}

TEST_P(ProductsOf, WriteOnlyTheirOwnColumnsOfAStridedOutput) {
  const uint32_t k = whole_blocks(GetParam().dtype, 64);
  const FileWeight file(GetParam().dtype, 19, k, 8);
  const auto weight = std::move(pack(file.view, *pool_)).value();
  for (const uint32_t rows : {2u, 7u, 19u}) {
    std::vector<float> x = random_values(rows * (k + 6), 9), fused(rows * 50, 7.0f), plain(rows * 19);
    ASSERT_TRUE(products_.reserve(rows, k, k));
    const ops::Product both[] = {{weight.get(), {&fused[3], rows, 19, 50}}, {weight.get(), {&plain[0], rows, 19, 19}}};
    products_.run({{x.data(), rows, k, k + 6}, both});
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t c = 0; c < 50; ++c) {
        const float expected = c >= 3 && c < 22 ? plain[r * 19 + c - 3] : 7.0f;
        ASSERT_EQ(fused[r * 50 + c], expected) << r << " " << c;
      }
    }
  }
}

TEST_P(ProductsOf, CarryValuesThatAreNotFiniteToTheOutput) {
  const uint32_t k = whole_blocks(GetParam().dtype, 64);
  const FileWeight file(GetParam().dtype, 16, k, 8);
  const auto weight = std::move(pack(file.view, *pool_)).value();
  for (const uint32_t rows : {2u, 6u, 18u}) {
    ASSERT_TRUE(products_.reserve(rows, k, k));
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = random_values(rows * k, 9), out(rows * 16);
      x[40] = poison;
      const ops::Product product{weight.get(), matrix(out, rows, 16)};
      products_.run({matrix(x, rows, k), {&product, 1}});
      for (uint32_t n = 0; n < 16 * rows; ++n) EXPECT_EQ(std::isfinite(out[n]), n >= 16) << n;
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Target target : available_targets()) {
    for (const DType dtype : testing::weight_types()) cases.push_back({target, dtype});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Targets, ProductsOf, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return fmt::format("{}_{}", to_string(test.param.target), to_string(test.param.dtype));
});

TEST(Products, OfExtremeBytesAreExactOnEveryTarget) {
  const auto pool = std::move(ThreadPool::create(1)).value();
  std::vector<std::byte> block(34);
  testing::put_u16(block.data(), f32_to_f16(1.0f));
  for (const int q : {-128, 127}) {
    std::fill(block.begin() + 2, block.end(), static_cast<std::byte>(q));
    const auto weight = std::move(pack({block.data(), DType::kQ8_0, 1, 32}, *pool)).value();
    for (const Target target : available_targets()) {
      for (const float value : {127.0f, -127.0f}) {
        for (const uint32_t rows : {1u, 8u, 16u}) {
          Products products(step_kernels(target), *pool);
          ASSERT_TRUE(products.reserve(rows, 32));
          std::vector<float> x(rows * 32, value), out(rows);
          const ops::Product product{weight.get(), matrix(out, rows, 1)};
          products.run({matrix(x, rows, 32), {&product, 1}});
          for (const float sum : out) EXPECT_EQ(sum, 32.0f * static_cast<float>(q) * value) << to_string(target);
        }
      }
    }
  }
}

TEST(Products, QuantiseActivationsAlikeOnEveryTarget) {
  std::vector<float> x = random_values(96, 4);
  for (uint32_t i = 32; i < 64; ++i) x[i] = 0.0f;
  std::vector<PanelBlock> expected(3), actual(3);
  step_kernels(Target::kScalar).quantize(x.data(), 96, 5, expected.data());
  for (const Target target : available_targets()) {
    step_kernels(target).quantize(x.data(), 96, 5, actual.data());
    EXPECT_EQ(std::memcmp(expected.data(), actual.data(), 3 * sizeof(PanelBlock)), 0) << to_string(target);
  }
  for (uint32_t k = 0; k < 96; ++k) {
    const PanelBlock& block = expected[k / 32];
    EXPECT_NEAR(block.scale[5] * static_cast<float>(block.q[5][k % 32]), x[k], 0.5001f * block.scale[5]);
  }
}

}  // namespace
}  // namespace headwater::backend::cpu
