// The device's arithmetic, compiled for the host, against ops: equal bits.
#include "backend/cuda/sampling/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "core/core.h"
#include "ops/logit_blocks.h"

namespace headwater::backend::cuda::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float any_float(Random& random) {
  return std::bit_cast<float>(random());
}

TEST(SamplingWeights, ATokenWeighsWhatItWeighsInItsBlock) {
  Random random(1);
  for (const float temperature : {1.0f, 0.7f, 0.01f, 3.0f, 1e20f, 1e-30f}) {
    for (int i = 0; i < 3000; ++i) {
      const float peak = 20 * random.normal();
      std::vector<float> logits(ops::kLogitBlock);
      for (float& logit : logits) logit = peak - temperature * 40 * random.uniform();
      logits[1] = peak;
      logits[2] = -kInfinity;
      logits[3] = std::nanf("");
      const ops::LogitBlock relative = ops::relative_block(logits, 0, {peak, temperature});
      const ops::WeightBlock weights = ops::weigh_block(relative);
      const Scale scale{peak, temperature};
      for (size_t token = 0; token < logits.size(); ++token) {
        ASSERT_EQ(weight_of(scale.relative(logits[token])), weights[token]) << logits[token] << " of " << peak;
      }
    }
  }
}

TEST(SamplingWeights, EveryRelativeLogitWeighsWhatItWeighsInItsBlock) {
  for (uint32_t bits = bits_of(-0.0f); bits < bits_of(-100.0f); bits += 64 * 601) {
    ops::LogitBlock relative;
    for (uint32_t i = 0; i < relative.size(); ++i) relative[i] = float_of(bits + 601 * i);
    const ops::WeightBlock weights = ops::weigh_block(relative);
    for (size_t i = 0; i < relative.size(); ++i) ASSERT_EQ(weight_of(relative[i]), weights[i]) << relative[i];
  }
}

TEST(SamplingKeys, AreOrderedAsLogitsAreAndGiveThemBack) {
  Random random(2);
  for (int i = 0; i < 200000; ++i) {
    const float a = any_float(random), b = any_float(random);
    if (std::isnan(a) || std::isnan(b)) continue;
    ASSERT_EQ(key_of(a) < key_of(b), a < b) << a << " " << b;
    ASSERT_EQ(logit_of(key_of(a)), a);
  }
  EXPECT_EQ(key_of(0.0f), key_of(-0.0f));
  EXPECT_EQ(key_of(-kInfinity), kKeyOfMinusInfinity);
  EXPECT_EQ(key_of(std::numeric_limits<float>::lowest()), kKeyOfLowest);
  EXPECT_EQ(key_of(std::nanf("")), 0u);
  EXPECT_EQ(key_of(-std::nanf("")), 0u);
}

TEST(SamplingKeys, TheLeastKeyAboveAFloorIsTheBorder) {
  Random random(3);
  for (int i = 0; i < 5000; ++i) {
    const Scale scale{20 * random.normal(), i % 2 == 0 ? 1.0f : 0.01f + random.uniform()};
    const float floor = -30 * random.uniform();
    const uint32_t key = least_key(scale, floor);
    ASSERT_GE(scale.relative(logit_of(key)), floor);
    ASSERT_LT(scale.relative(logit_of(key - 1)), floor);
  }
  EXPECT_EQ(least_key({3, 1}, 0), key_of(3));
  EXPECT_EQ(least_key({-3, 2}, std::numeric_limits<float>::lowest()), kKeyOfLowest);
}

TEST(SamplingKeys, WhatIsBelowTheKeyForTopPMayBeLeftOut) {
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t vocabulary = 1 + random.below(300);
    const float temperatures[] = {1, 0.01f, 5, 1e-20f, 1e30f};
    const Scale scale{(i % 7 == 0 ? 1e30f : 20) * random.normal(), temperatures[random.below(5)]};
    const float spread = 20 * random.uniform();
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) logit = scale.peak - scale.temperature * spread * random.uniform();
    logits[random.below(vocabulary)] = scale.peak;
    uint64_t total = 0, below = 0;
    for (const float logit : logits) total += weight_of(scale.relative(logit));
    const float share = i % 3 == 0 ? 0.99999994f : random.uniform();
    const uint64_t left_out = total - share_of(share, total);
    const uint32_t key = key_below_top_p(scale, left_out, vocabulary);
    for (const float logit : logits) below += key_of(logit) < key ? weight_of(scale.relative(logit)) : 0;
    ASSERT_LE(below, left_out) << vocabulary << " tokens, peak " << scale.peak << ", temperature " << scale.temperature;
    ASSERT_LE(key, key_of(scale.peak));
  }
}

TEST(SamplingPenalties, AreAppliedOnceAndInTheOrderOfTheHost) {
  const Penalties all{1.5f, 0.25f, 0.5f};
  EXPECT_EQ(all.apply(3, 2), 3 / 1.5f - (0.25f * 2 + 0.5f));
  EXPECT_EQ(all.apply(-3, 0), -3 * 1.5f);  // of the prompt alone
  EXPECT_EQ((Penalties{1, 0, 0.5f}).apply(0, 1), -0.5f);
  EXPECT_EQ(all.apply(-kInfinity, 1), -kInfinity);
}

}  // namespace
}  // namespace headwater::backend::cuda::sampling
