// The perplexity of a fixed text of 1,103 tokens: a figure that every weight and every position has a part in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

Result<double> perplexity(std::string_view backend, DType kv_dtype, std::span<const TokenId> tokens) {
  HEADWATER_ASSIGN_OR_RETURN(const LoadedModel loaded, load_default_model(backend));
  HEADWATER_ASSIGN_OR_RETURN(
      ModelDriver driver,
      ModelDriver::create(*loaded.model, *loaded.backend,
                          {.tokens_max = static_cast<uint32_t>(tokens.size()), .kv_dtype = kv_dtype}));
  double sum = 0;
  uint32_t scored = 0;
  const auto score = [&](uint32_t position, std::span<const float> logits) {
    sum += negative_log_likelihood(logits, tokens[position + 1]);
    ++scored;
  };
  HEADWATER_RETURN_IF_ERROR(driver.run(tokens.first(tokens.size() - 1), 0, score));
  check(scored == tokens.size() - 1, "every position is scored once");
  return std::exp(sum / scored);
}

TEST(Perplexity, OfTheReferenceIsTheOraclesAndOfTheCpuIsTheReferences) {
  const Result<GoldenPerplexity> golden = read_golden_perplexity(HEADWATER_SOURCE_DIR "/tests/golden");
  ASSERT_TRUE(golden) << golden.status().message();
  const Result<double> reference = perplexity("reference", DType::kF32, golden->tokens);
  ASSERT_TRUE(reference) << reference.status().message();
  const Result<double> cpu = perplexity("cpu", DType::kBF16, golden->tokens);
  ASSERT_TRUE(cpu) << cpu.status().message();
  RecordProperty("oracle", fmt::format("{:.6f}", golden->perplexity));
  RecordProperty("reference", fmt::format("{:.6f}", *reference));
  RecordProperty("cpu", fmt::format("{:.6f}", *cpu));
  EXPECT_NEAR(*reference, golden->perplexity, 0.001 * golden->perplexity);
  EXPECT_NEAR(*cpu, *reference, 0.005 * *reference);
}

}  // namespace
}  // namespace headwater::testing
