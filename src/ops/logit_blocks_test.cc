#include "ops/logit_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/core.h"

namespace headwater::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t size, Random& random, float grid) {
  std::vector<float> row(size);
  for (float& logit : row) logit = std::round(random.normal() / grid) * grid;
  return row;
}

TEST(LogitBlocks, AScanFindsTheFirstOfTheLargestLogitsAndEachBlocksLargest) {
  Random random(1);
  for (size_t size = 1; size < 300; ++size) {
    for (const float grid : {0.001f, 1.0f, 100.0f}) {  // few equal logits, many, all
      const std::vector<float> row = random_row(size, random, grid);
      std::vector<float> maxima(logit_blocks(size));
      const LogitScan scan = scan_logits(row, maxima);
      const auto first = std::max_element(row.begin(), row.end());
      ASSERT_TRUE(scan.is_sound);
      ASSERT_EQ(scan.token, first - row.begin());
      ASSERT_EQ(scan.peak, *first);
      for (size_t block = 0; block < maxima.size(); ++block) {
        const auto begin = row.begin() + static_cast<ptrdiff_t>(block * kLogitBlock);
        ASSERT_EQ(maxima[block], *std::max_element(begin, std::min(begin + kLogitBlock, row.end())));
      }
    }
  }
}

TEST(LogitBlocks, AScanReportsANanOrInfinityWhereverItIs) {
  for (const size_t size : {1u, 64u, 70u, 130u}) {
    for (size_t at = 0; at < size; ++at) {
      for (const float broken : {std::nanf(""), -std::nanf(""), kInfinity}) {
        std::vector<float> row(size, -1.0f), maxima(logit_blocks(size));
        row[at] = broken;
        ASSERT_FALSE(scan_logits(row, maxima).is_sound) << size << " " << at << " " << broken;
        row[at] = -kInfinity;
        ASSERT_TRUE(scan_logits(row, maxima).is_sound);
      }
    }
  }
}

TEST(LogitBlocks, ARowOfMinusInfinityHasNoPeak) {
  const std::vector<float> row(100, -kInfinity);
  std::vector<float> maxima(2);
  EXPECT_EQ(scan_logits(row, maxima).peak, -kInfinity);
  EXPECT_EQ(maxima, std::vector<float>(2, -kInfinity));
}

TEST(LogitBlocks, ExponentialsAreExactToTheLastBitsAndZeroWhereFloatsEnd) {
  double worst = 0;
  for (float x = 0; x > -87; x -= 1.7e-4f) {
    LogitBlock values;
    values.fill(x);
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(exp_block(values)[11] - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
  const LogitBlock ends{0.0f, -0.0f, -87.001f, -1e30f, -kInfinity, std::nanf("")};
  const LogitBlock weights = exp_block(ends);
  EXPECT_EQ(weights[0], 1);
  EXPECT_EQ(weights[1], 1);
  for (size_t i = 2; i < 6; ++i) EXPECT_EQ(weights[i], 0) << ends[i];
}

TEST(LogitBlocks, AWeightIsItsExponentialRoundedToUnits) {
  LogitBlock relative;
  for (float x = 0; x > -40; x -= 0.37f) {
    for (size_t i = 0; i < kLogitBlock; ++i) relative[i] = x - 0.001f * static_cast<float>(i);
    const LogitBlock weights = exp_block(relative);
    const WeightBlock units = weigh_block(relative);
    for (size_t i = 0; i < kLogitBlock; ++i) {
      ASSERT_EQ(units[i], static_cast<uint64_t>(std::nearbyint(std::ldexp(weights[i], kWeightBits)))) << relative[i];
    }
  }
  relative.fill(0);
  EXPECT_EQ(weigh_block(relative)[63], uint64_t{1} << kWeightBits);
  relative.fill(-kInfinity);
  EXPECT_EQ(weigh_block(relative)[0], 0u);
}

TEST(LogitBlocks, TheLargestVocabularyOfEqualLogitsHasASum) {
  const std::vector<float> row(kVocabularyMax, -3.0f);
  std::vector<uint64_t> sums(logit_blocks(row.size()));
  EXPECT_EQ(sum_weights(row, {-3.0f, 1}, sums), uint64_t{kVocabularyMax} << kWeightBits);
}

TEST(LogitBlocks, SumsOfWeightsAreThoseOfTheRowWhateverItsLength) {
  Random random(2);
  for (const size_t size : {1u, 63u, 64u, 65u, 1000u}) {
    const std::vector<float> row = random_row(size, random, 0.001f);
    const Relative relative{*std::max_element(row.begin(), row.end()), 0.7f};
    std::vector<uint64_t> sums(logit_blocks(size));
    double exact = 0;
    uint64_t total = 0;
    for (const float logit : row) exact += std::exp(double{relative.of(logit)});
    EXPECT_NEAR(std::ldexp(sum_weights(row, relative, sums), -kWeightBits) / exact, 1, 2e-7);
    for (const uint64_t sum : sums) total += sum;
    EXPECT_EQ(sum_weights(row, relative, sums), total);
  }
}

}  // namespace
}  // namespace headwater::ops
