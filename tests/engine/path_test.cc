// Real requests behind one long prompt take the shared path with the settings that ship, and read less for it.
#include <gtest/gtest.h>

#include "engine/real_engine.h"

namespace headwater::testing {
namespace {

uint64_t steps_of(const engine::EngineMetrics& metrics, attention::Path path) {
  return metrics.attention_steps[static_cast<size_t>(path)].value();
}

class RealRequests : public ::testing::Test {
 protected:
  static constexpr uint32_t kRequests = 12, kPrefix = 768, kAnswer = 16;

  void SetUp() override {
    Result<LoadedModel> loaded = load_default_model("auto");
    ASSERT_TRUE(loaded) << loaded.status().message();
    loaded_ = std::make_unique<LoadedModel>(std::move(loaded).value());
    Result<English> english = English::read();
    ASSERT_TRUE(english) << english.status().message();
    for (uint32_t i = 0; i < kRequests; ++i) {
      engine::Request request;
      request.prompt = english->prompt(english->piece(0, kPrefix), kPrefix + 20 * i, 12 + i);
      request.sampling.tokens_max = kAnswer;
      request.sampling.temperature = 0;
      requests_.push_back(std::move(request));
    }
  }

  RealEngine create(attention::Sharing sharing) {
    engine::EngineConfig config;
    config.context_max = 1024;
    config.kv_bytes = kv_bytes_of(*loaded_, 200);
    config.attention.sharing = sharing;
    Result<RealEngine> real = create_real_engine(*loaded_, config);
    check(real.is_ok(), "the engine of the path test");
    return std::move(real).value();
  }

  std::unique_ptr<LoadedModel> loaded_;
  std::vector<engine::Request> requests_;
};

TEST_F(RealRequests, BehindOneLongPromptAttendItOnceAStep) {
  // Where products run on tiles sharing pays and `auto` takes it; elsewhere that depends on the processor.
  const bool pays = loaded_->backend->info().target == "avx512_amx";
  const RealEngine real = create(pays ? attention::Sharing::kAuto : attention::Sharing::kAlways);
  const Result<ExactAnswers> answers = answer_all(*real.engine, requests_);
  ASSERT_TRUE(answers) << answers.status().message();
  ASSERT_EQ(answers->size(), kRequests);

  const engine::EngineMetrics& metrics = real.engine->metrics();
  // Every step that decodes them shares and reads the prefix once. The request that computes it is a step ahead of the
  // others and ends a step before them.
  EXPECT_GE(steps_of(metrics, attention::Path::kShared), kAnswer - 1);
  EXPECT_GE(metrics.shared_prefix_tokens.value(), uint64_t{kAnswer - 2} * (kRequests - 1) * kPrefix);
  EXPECT_EQ(metrics.attention_failures.value(), 0u);
  // The prompt's own pass reads the same either way; the decodes read a fifth or less.
  const uint64_t actual = metrics.kv_bytes_read_actual.value(), flat = metrics.kv_bytes_read_flat.value();
  EXPECT_LT(actual, flat / 2);
  EXPECT_GT(actual, 0u);
  EXPECT_GE(metrics.prefix_cache_hits.value(), uint64_t{kRequests - 1} * kPrefix);
  RecordProperty("kv_bytes_actual_of_flat",
                 fmt::format("{:.3f}", static_cast<double>(actual) / static_cast<double>(flat)));
}

TEST_F(RealRequests, TakeTheFlatPathWhereSharingIsOff) {
  const RealEngine real = create(attention::Sharing::kOff);
  const Result<ExactAnswers> answers = answer_all(*real.engine, requests_);
  ASSERT_TRUE(answers) << answers.status().message();
  const engine::EngineMetrics& metrics = real.engine->metrics();
  EXPECT_EQ(steps_of(metrics, attention::Path::kFlat), metrics.steps.value());
  EXPECT_EQ(metrics.shared_prefix_tokens.value(), 0u);
  EXPECT_EQ(metrics.kv_bytes_read_actual.value(), metrics.kv_bytes_read_flat.value());
}

}  // namespace
}  // namespace headwater::testing
