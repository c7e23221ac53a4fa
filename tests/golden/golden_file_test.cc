#include "golden/golden_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace headwater::testing {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = HEADWATER_SOURCE_DIR "/tests/golden";

TEST(GoldenFile, HoldsPromptsWhoseLogitsChoseTheirContinuations) {
  auto golden = read_golden(kFolder);
  ASSERT_TRUE(golden.is_ok()) << golden.status().message();
  EXPECT_GE(golden->prompts.size(), 20u);
  for (const GoldenPrompt& prompt : golden->prompts) {
    SCOPED_TRACE(prompt.name);
    EXPECT_GE(prompt.tokens.size(), 5u);
    EXPECT_LE(prompt.tokens.size(), 60u);
    ASSERT_EQ(prompt.continuation.size(), 32u);
    ASSERT_EQ(prompt.steps.size(), 32u);
    for (size_t i = 0; i < prompt.steps.size(); ++i) {
      const GoldenStep& step = prompt.steps[i];
      EXPECT_EQ(step.top_ids[0], prompt.continuation[i]);
      EXPECT_NEAR(step.top_logits[0] - step.top_logits[1], prompt.margins[i], 1e-4);
      EXPECT_GT(step.logsumexp, step.top_logits[0]);
    }
  }
}

TEST(GoldenFile, GivesAStridedLogitThatIsAlsoATopOneTwiceTheSame) {
  auto golden = read_golden(kFolder);
  ASSERT_TRUE(golden.is_ok()) << golden.status().message();
  size_t met = 0;
  for (const GoldenPrompt& prompt : golden->prompts) {
    for (const GoldenStep& step : prompt.steps) {
      for (size_t i = 0; i < step.top_ids.size(); ++i) {
        const auto id = static_cast<uint32_t>(step.top_ids[i]);
        ASSERT_LT(id, golden->vocabulary);
        if (id % golden->stride != 0) continue;
        EXPECT_EQ(step.strided[id / golden->stride], step.top_logits[i]);
        ++met;
      }
    }
  }
  EXPECT_GT(met, 0u);
}

TEST(GoldenFile, HoldsAPerplexityThatIsTheExponentialOfItsMean) {
  auto golden = read_golden_perplexity(kFolder);
  ASSERT_TRUE(golden.is_ok()) << golden.status().message();
  EXPECT_EQ(golden->scored + 1, golden->tokens.size());
  EXPECT_GT(golden->tokens.size(), 900u);
  EXPECT_DOUBLE_EQ(std::exp(golden->mean_negative_log_likelihood), golden->perplexity);
}

TEST(GoldenFile, RefusesAFolderThatIsMissingOrDamaged) {
  EXPECT_EQ(read_golden("/nonexistent").status().code(), ErrorCode::kNotFound);
  const auto folder = std::filesystem::path(::testing::TempDir()) / "headwater_golden_file_test";
  std::filesystem::create_directories(folder);
  for (const char* name : {"smollm2_golden.jsonl", "smollm2_golden_logits.bin"}) {
    std::filesystem::copy_file(std::filesystem::path(kFolder) / name, folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  ASSERT_TRUE(read_golden(folder).is_ok());
  const auto logits = folder / "smollm2_golden_logits.bin";
  std::filesystem::resize_file(logits, std::filesystem::file_size(logits) - 4);
  EXPECT_EQ(read_golden(folder).status().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(read_golden(folder).status().message(), HasSubstr("make both again"));
  std::ofstream(folder / "smollm2_golden.jsonl") << "{\"name\": \"cut\"\n";
  EXPECT_EQ(read_golden(folder).status().code(), ErrorCode::kCorrupt);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace headwater::testing
