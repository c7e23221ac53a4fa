#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace headwater::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SampleScratch new_scratch(size_t vocabulary) {
  Result<SampleScratch> scratch = SampleScratch::create(static_cast<uint32_t>(vocabulary));
  EXPECT_TRUE(scratch);
  return std::move(scratch).value();
}

Sampled sampled(const std::vector<float>& logits, const SampleRow& row) {
  SampleScratch scratch = new_scratch(logits.size());
  Result<Sampled> result = sample_row(logits, row, scratch);
  EXPECT_TRUE(result) << result.status().message();
  for (const uint32_t count : scratch.counts()) EXPECT_EQ(count, 0u) << "counts are zero between calls";
  return *result;
}

std::vector<float> random_logits(size_t vocabulary, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = 2 * random.normal();
  return logits;
}

// The rules of sampling.h once more, in the most literal way: every step over the whole vocabulary, fully sorted, in
// double.
std::vector<double> slow_distribution(const std::vector<float>& raw, const SampleRow& row) {
  std::vector<double> logits(raw.begin(), raw.end());
  for (const LogitBias& bias : row.bias) logits[bias.token] += bias.bias;
  for (const TokenId token : row.banned) logits[token] = -kInfinity;
  std::set<TokenId> seen(row.prompt.begin(), row.prompt.end());
  seen.insert(row.generated.begin(), row.generated.end());
  for (const TokenId token : seen) {
    logits[token] = logits[token] > 0 ? logits[token] / row.repetition_penalty : logits[token] * row.repetition_penalty;
  }
  std::map<TokenId, int> counts;
  for (const TokenId token : row.generated) ++counts[token];
  for (const auto& [token, count] : counts) logits[token] -= row.frequency_penalty * count + row.presence_penalty;
  const auto probabilities = [&] {
    std::vector<double> p(logits.size());
    const double peak = *std::max_element(logits.begin(), logits.end());
    for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp(logits[i] - peak);
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= total;
    return p;
  };
  for (double& logit : logits) logit /= row.temperature;
  std::vector<double> p = probabilities();
  const double p_max = *std::max_element(p.begin(), p.end());
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] < row.min_p * p_max) logits[i] = -kInfinity;
  }
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  for (size_t i = row.top_k; row.top_k > 0 && i < order.size(); ++i) logits[order[i]] = -kInfinity;
  p = probabilities();
  double kept = 0;
  for (const size_t i : order) {
    if (i != order[0] && kept >= row.top_p) logits[i] = -kInfinity;
    kept += p[i];
  }
  return probabilities();
}

// Draws many positions and holds their frequencies against the slow distribution: nothing impossible is drawn, and
// chi-square stays below its mean by five deviations.
void expect_distribution(const std::vector<float>& logits, SampleRow row, const char* what) {
  constexpr uint32_t kDraws = 20000;
  const std::vector<double> expected = slow_distribution(logits, row);
  std::vector<double> observed(logits.size());
  SampleScratch scratch = new_scratch(logits.size());
  for (uint32_t i = 0; i < kDraws; ++i) {
    row.position = i;
    const Result<Sampled> result = sample_row(logits, row, scratch);
    ASSERT_TRUE(result);
    ASSERT_GT(expected[static_cast<size_t>(result->token)], 0) << what << ": token " << result->token;
    ++observed[static_cast<size_t>(result->token)];
  }
  double chi_square = 0, cells = 0, rest_expected = 0, rest_observed = 0;
  const auto add_cell = [&](double want, double got) {
    chi_square += (got - want) * (got - want) / want;
    ++cells;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    const double want = expected[i] * kDraws;
    if (want >= 5) {
      add_cell(want, observed[i]);
    } else {
      rest_expected += want;
      rest_observed += observed[i];
    }
  }
  if (rest_expected > 0.5) add_cell(rest_expected, rest_observed);
  EXPECT_LT(chi_square, cells + 5 * std::sqrt(2 * cells)) << what << ": " << cells << " cells";
}

TEST(Sampling, GreedyTakesTheLargestLogit) {
  std::vector<float> logits = random_logits(1000, 1);
  logits[717] = 50;
  EXPECT_EQ(sampled(logits, {.temperature = 0}).token, 717);
}

TEST(Sampling, EqualLogitsGoToTheLowerId) {
  EXPECT_EQ(sampled({1, 3, 0, 3, 3}, {.temperature = 0}).token, 1);
  EXPECT_EQ(sampled({2, 2, 2}, {.top_k = 1}).token, 0);
  EXPECT_EQ(sampled({2, 2, 2}, {.top_p = 0.1f}).token, 0);
  const Sampled top = sampled({1, 5, 1, 5, 1}, {.temperature = 0, .top_logprobs = 4});
  EXPECT_EQ(top.top[0].token, 1);
  EXPECT_EQ(top.top[1].token, 3);
  EXPECT_EQ(top.top[2].token, 0);
  EXPECT_EQ(top.top[3].token, 2);
}

TEST(Sampling, EachParameterGivesTheDistributionOfTheLiteralRules) {
  const std::vector<float> logits = random_logits(40, 2);
  const std::vector<TokenId> prompt{0, 1, 2, 3, 3, 7}, generated{2, 2, 2, 9, 11, 9}, banned{5, 6, 30};
  const std::vector<LogitBias> bias{{4, 3.0f}, {8, -5.0f}};
  expect_distribution(logits, {}, "plain");
  expect_distribution(logits, {.temperature = 0.5f}, "temperature 0.5");
  expect_distribution(logits, {.temperature = 2}, "temperature 2");
  expect_distribution(logits, {.top_k = 5}, "top_k");
  expect_distribution(logits, {.top_k = 1000}, "top_k above the vocabulary");
  expect_distribution(logits, {.top_p = 0.7f}, "top_p");
  expect_distribution(logits, {.top_p = 0.0f}, "top_p 0 keeps one");
  expect_distribution(logits, {.min_p = 0.1f}, "min_p");
  expect_distribution(logits, {.min_p = 1.0f}, "min_p 1 keeps the best");
  expect_distribution(logits, {.repetition_penalty = 1.7f, .prompt = prompt, .generated = generated}, "repetition");
  expect_distribution(logits, {.frequency_penalty = 0.6f, .generated = generated}, "frequency");
  expect_distribution(logits, {.presence_penalty = 1.1f, .generated = generated}, "presence");
  expect_distribution(logits, {.presence_penalty = -1.1f, .generated = generated}, "negative presence");
  expect_distribution(logits, {.bias = bias, .banned = banned}, "bias and bans");
}

TEST(Sampling, AllParametersTogetherApplyInTheirOrder) {
  const std::vector<TokenId> prompt{0, 1, 2, 3}, generated{2, 2, 9, 11}, banned{5};
  const std::vector<LogitBias> bias{{4, 1.0f}};
  for (uint64_t seed = 10; seed < 16; ++seed) {
    expect_distribution(random_logits(60, seed),
                        {.temperature = 1.3f,
                         .top_k = 20,
                         .top_p = 0.85f,
                         .min_p = 0.02f,
                         .repetition_penalty = 1.2f,
                         .frequency_penalty = 0.3f,
                         .presence_penalty = 0.2f,
                         .seed = seed,
                         .bias = bias,
                         .banned = banned,
                         .prompt = prompt,
                         .generated = generated},
                        "all");
  }
}

TEST(Sampling, PenaltiesCountBeforeGreedyChooses) {
  const std::vector<TokenId> generated{1};
  EXPECT_EQ(sampled({3, 3.5f}, {.temperature = 0, .generated = generated}).token, 1);
  EXPECT_EQ(sampled({3, 3.5f}, {.temperature = 0, .presence_penalty = 1, .generated = generated}).token, 0);
}

TEST(Sampling, ADrawDependsOnSeedChoiceAndPositionAlone) {
  const std::vector<float> logits = random_logits(5000, 3), other = random_logits(5000, 4);
  SampleScratch scratch = new_scratch(5000);
  std::set<TokenId> by_seed, by_choice, by_position;
  for (uint32_t i = 0; i < 20; ++i) {
    const SampleRow row{.seed = 7, .choice = 1, .position = i};
    const TokenId alone = sampled(logits, row).token;
    ASSERT_TRUE(sample_row(other, {.seed = 99, .position = i}, scratch));  // somebody else's row in between
    EXPECT_EQ(sample_row(logits, row, scratch)->token, alone);
    by_position.insert(alone);
    by_seed.insert(sampled(logits, {.seed = i}).token);
    by_choice.insert(sampled(logits, {.choice = i}).token);
  }
  EXPECT_GT(by_seed.size(), 10u);
  EXPECT_GT(by_choice.size(), 10u);
  EXPECT_GT(by_position.size(), 10u);
  EXPECT_NE(sampled(logits, {.seed = 1}).token, sampled(logits, {.seed = uint64_t{1} << 32}).token);
}

TEST(Sampling, LogprobsComeFromTheRawLogitsAndSumToOne) {
  const std::vector<float> logits = random_logits(300, 5);
  double total = 0;
  for (const float logit : logits) total += std::exp(logit);
  const std::vector<TokenId> banned{0, 1};
  double sum = 0;
  for (TokenId token = 2; token < 300; ++token) {  // a bias forces each token; the raw probability is unmoved by it
    const std::vector<LogitBias> bias{{token, 100.0f}};
    const Sampled result = sampled(logits, {.temperature = 0, .bias = bias, .banned = banned, .want_logprob = true});
    ASSERT_EQ(result.token, token);
    EXPECT_NEAR(result.logprob, logits[static_cast<size_t>(token)] - std::log(total), 1e-5);
    sum += std::exp(result.logprob);
  }
  sum += (std::exp(logits[0]) + std::exp(logits[1])) / total;
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST(Sampling, TopLogprobsAreTheLargestInOrder) {
  const std::vector<float> logits = random_logits(200, 6);
  const Sampled result = sampled(logits, {.want_logprob = true, .top_logprobs = kLogprobsMax});
  ASSERT_EQ(result.top_count, kLogprobsMax);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (uint32_t i = 0; i < kLogprobsMax; ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(result.top[i].token)], sorted[i]);
    EXPECT_NEAR(result.top[i].logprob - result.top[0].logprob, sorted[i] - sorted[0], 1e-5);
  }
  EXPECT_EQ(sampled({1, 2}, {.top_logprobs = 5}).top_count, 2u);
}

TEST(Sampling, MinusInfinityIsNeverChosenAndHasItsLogprob) {
  const std::vector<float> logits{-kInfinity, 1, -kInfinity, 0};
  expect_distribution(logits, {}, "-inf");
  expect_distribution(logits, {.temperature = 5, .top_k = 3, .top_p = 0.999f}, "-inf with filters");
  const Sampled result = sampled(logits, {.temperature = 0, .want_logprob = true, .top_logprobs = 4});
  EXPECT_EQ(result.top[2].token, 0);
  EXPECT_EQ(result.top[2].logprob, -kInfinity);
  EXPECT_EQ(result.top[3].token, 2);
}

TEST(Sampling, BrokenLogitsAreAnErrorNotAChoice) {
  SampleScratch scratch = new_scratch(3);
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    const Result<Sampled> result = sample_row(std::vector<float>{1, broken, 2}, {.temperature = 0}, scratch);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.status().code(), ErrorCode::kInternal);
    EXPECT_NE(result.status().message().find("token 1"), std::string::npos);
  }
}

TEST(Sampling, BanningEveryTokenIsAnError) {
  SampleScratch scratch = new_scratch(3);
  const std::vector<TokenId> banned{0, 1, 2};
  for (const float temperature : {0.0f, 1.0f}) {
    const SampleRow row{.temperature = temperature, .banned = banned};
    const Result<Sampled> result = sample_row(std::vector<float>{1, 2, 3}, row, scratch);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(sample_row(std::vector<float>(3, -kInfinity), {}, scratch));
}

TEST(Sampling, ExtremeTemperaturesStayInsideTheVocabulary) {
  const std::vector<float> logits{-1e30f, 3e38f, 0, 2.9e38f};
  for (const float temperature : {1e-30f, 1e-6f, 1.0f, 1e30f}) {
    for (uint32_t position = 0; position < 20; ++position) {
      const TokenId token = sampled(logits, {.temperature = temperature, .position = position}).token;
      EXPECT_TRUE(token >= 0 && token < 4);
      EXPECT_TRUE(token == 1 || temperature > 1);
    }
  }
}

}  // namespace
}  // namespace headwater::ops
