#include "ops/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace headwater::ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<ExpertChoice> choose(const std::vector<float>& logits, uint32_t used, bool renormalize) {
  std::vector<ExpertChoice> chosen(used);
  choose_experts(logits, renormalize, chosen);
  return chosen;
}

std::vector<uint32_t> ids(const std::vector<ExpertChoice>& chosen) {
  std::vector<uint32_t> ids;
  for (const ExpertChoice& choice : chosen) ids.push_back(choice.expert);
  return ids;
}

TEST(ChooseExperts, TakesTheGreatestLogitsAndTheLowerIdAmongEquals) {
  EXPECT_EQ(ids(choose({1, 5, 3, 5, 4}, 3, true)), std::vector<uint32_t>({1, 3, 4}));
  EXPECT_EQ(ids(choose({2, 2, 2, 2}, 2, true)), std::vector<uint32_t>({0, 1}));
  EXPECT_EQ(ids(choose({1, 2, 3}, 3, true)), std::vector<uint32_t>({2, 1, 0}));
  EXPECT_EQ(ids(choose({-kInfinity, 7}, 2, true)), std::vector<uint32_t>({1, 0}));
}

TEST(ChooseExperts, RenormalisedWeightsAreTheSoftmaxOfTheChosenLogits) {
  const std::vector<ExpertChoice> chosen = choose({0, 3, 1, 2}, 2, true);
  EXPECT_FLOAT_EQ(chosen[0].weight, 1 / (1 + std::exp(-1.0f)));
  EXPECT_FLOAT_EQ(chosen[1].weight, 1 / (1 + std::exp(1.0f)));
}

TEST(ChooseExperts, OtherwiseTheyAreThoseOfTheSoftmaxOfAll) {
  const std::vector<ExpertChoice> chosen = choose({0, 3, 1, 2}, 2, false);
  const double sum = std::exp(0.0) + std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_FLOAT_EQ(chosen[0].weight, static_cast<float>(std::exp(3.0) / sum));
  EXPECT_FLOAT_EQ(chosen[1].weight, static_cast<float>(std::exp(2.0) / sum));
}

TEST(ChooseExperts, LogitsFarFromZeroDoNotOverflow) {
  EXPECT_EQ(choose({1e30f, -1e30f, 0}, 2, false)[0].weight, 1);
  EXPECT_EQ(choose({-1e30f, -2e30f}, 2, true)[1].weight, 0);
}

TEST(ChooseExperts, ALogitThatIsNotANumberReachesTheWeights) {
  EXPECT_EQ(ids(choose({1, 2, kNan, 3}, 1, true)), std::vector<uint32_t>({2}));
  for (const ExpertChoice& choice : choose({1, 2, kNan, 3}, 2, true)) EXPECT_TRUE(std::isnan(choice.weight));
  EXPECT_TRUE(std::isnan(choose({kInfinity, 1}, 2, true)[0].weight));
}

TEST(ChooseExpertsDeath, NoExpertOrMoreThanThereAreIsABug) {
  EXPECT_DEATH(choose({1, 2}, 0, true), "at least one expert");
  EXPECT_DEATH(choose({1, 2}, 3, true), "at most all");
}

}  // namespace
}  // namespace headwater::ops
