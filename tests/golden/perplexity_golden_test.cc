// The perplexity of a fixed text of 1,103 tokens: a figure that every weight and every position has a part in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "golden/golden_file.h"
#include "support/default_model.h"
#include "support/model_driver.h"

namespace headwater::testing {
namespace {

// -log of the probability that the softmax of `logits` gives to `token`.
double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(token)];
}

// The negative log likelihood of every token after the first.
Result<std::vector<double>> likelihoods(std::string_view backend, DType kv_dtype, std::span<const TokenId> tokens) {
  HEADWATER_ASSIGN_OR_RETURN(const LoadedModel loaded, load_default_model(backend));
  HEADWATER_ASSIGN_OR_RETURN(
      ModelDriver driver,
      ModelDriver::create(*loaded.model, *loaded.backend,
                          {.tokens_max = static_cast<uint32_t>(tokens.size()), .kv_dtype = kv_dtype}));
  std::vector<double> scores;
  const auto score = [&](uint32_t position, std::span<const float> logits) {
    check(position == scores.size(), "positions are scored in order");
    scores.push_back(negative_log_likelihood(logits, tokens[position + 1]));
  };
  HEADWATER_RETURN_IF_ERROR(driver.run(tokens.first(tokens.size() - 1), 0, score));
  check(scores.size() == tokens.size() - 1, "every position is scored once");
  return scores;
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += (value - mean(values)) * (value - mean(values));
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

TEST(Perplexity, OfTheReferenceIsTheOraclesAndOfTheCpuIsTheReferences) {
  const Result<GoldenPerplexity> golden = read_golden_perplexity(HEADWATER_SOURCE_DIR "/tests/golden");
  ASSERT_TRUE(golden) << golden.status().message();
  const auto reference = likelihoods("reference", DType::kF32, golden->tokens);
  ASSERT_TRUE(reference) << reference.status().message();
  const auto cpu = likelihoods("cpu", DType::kBF16, golden->tokens);
  ASSERT_TRUE(cpu) << cpu.status().message();
  std::vector<double> differences;
  std::ranges::transform(*cpu, *reference, std::back_inserter(differences), std::minus());
  const double standard_error = deviation(differences) / std::sqrt(static_cast<double>(differences.size()));
  RecordProperty("oracle", fmt::format("{:.6f}", golden->perplexity));
  RecordProperty("reference", fmt::format("{:.6f}", std::exp(mean(*reference))));
  RecordProperty("cpu", fmt::format("{:.6f}", std::exp(mean(*cpu))));
  RecordProperty("difference", fmt::format("{:.6f} +- {:.6f}", mean(differences), standard_error));
  RecordProperty("deviation", fmt::format("{:.6f}", deviation(differences)));
  EXPECT_NEAR(std::exp(mean(*reference)), golden->perplexity, 0.001 * golden->perplexity);
  // Activations of 8 bits move every token's likelihood by a little. Which way is chance, and another order of a sum deals
  // anew: perplexity may differ by 0.5% beyond what that chance makes of so few tokens. How far the tokens move is no
  // chance, and the sharper test.
  constexpr double kStandardError = 0.0024;  // of the kernels that docs/decisions/0003 records
  EXPECT_NEAR(mean(differences), 0, 0.005 + 2 * kStandardError);
  EXPECT_LT(deviation(differences), 0.09);
}

}  // namespace
}  // namespace headwater::testing
