// The engine's first guarantee on the default model: what a request is answered, to the last bit of every log
// probability, depends neither on batch mates nor on prompt chunks, sharing, the prefix cache or preemption.
#include <gtest/gtest.h>

#include <set>

#include "engine/schedules.h"

namespace headwater::testing {
namespace {

struct Cpu {
  static constexpr const char* kName = "cpu";
};
using RealModelInvariance = RealModelSchedules<Cpu>;

uint64_t steps_of(const engine::EngineMetrics& metrics, attention::Path path) {
  return metrics.attention_steps[static_cast<size_t>(path)].value();
}

TEST_F(RealModelInvariance, TheAnswersAreWholeAndDifferWhereTheirRequestsDo) {
  ASSERT_EQ(expected_.size(), 17u);
  std::set<std::vector<TokenId>> texts;
  for (const auto& [key, answer] : expected_) {
    EXPECT_EQ(answer.tokens.size(), requests_[key.first].sampling.tokens_max);
    EXPECT_EQ(answer.top_logprob_bits.size(), 3 * answer.tokens.size());
    EXPECT_EQ(answer.finish, engine::FinishReason::kLength);
    texts.insert(answer.tokens);
  }
  EXPECT_GE(texts.size(), 15u);
}

TEST_F(RealModelInvariance, BitsDoNotDependOnChunksBatchesAndSharing) {
  uint64_t shared_steps = 0;
  for (const uint32_t step_tokens : {7u, 64u, 512u}) {
    for (const uint32_t batch : {5u, 16u}) {
      for (const Sharing sharing : {Sharing::kOff, Sharing::kAuto, Sharing::kAlways}) {
        if (sharing == Sharing::kAuto && batch != 16) continue;  // always shares wherever auto may
        const Schedule schedule{.step_tokens = step_tokens, .batch = batch, .sharing = sharing};
        SCOPED_TRACE(schedule.name());
        expect_the_same_answers(answers(schedule, [&](const engine::EngineMetrics& metrics) {
          const uint64_t shared = metrics.steps.value() - steps_of(metrics, attention::Path::kFlat);
          EXPECT_TRUE(sharing != Sharing::kOff || shared == 0);
          EXPECT_TRUE(sharing != Sharing::kAlways || shared > 0);
          EXPECT_GT(metrics.prefix_cache_hits.value(), 2000u);
          shared_steps += shared;
        }));
      }
    }
  }
  EXPECT_GT(shared_steps, 0u);
}

// One sequence has nobody to share with.
TEST_F(RealModelInvariance, BitsAreThoseOfSequencesThatRunAlone) {
  for (const uint32_t step_tokens : {7u, 64u, 512u}) {
    const Schedule schedule{.step_tokens = step_tokens, .batch = 1};
    SCOPED_TRACE(schedule.name());
    expect_the_same_answers(answers(schedule));
  }
}

TEST_F(RealModelInvariance, BitsAreThoseOfAPromptComputedTokenByToken) {
  constexpr size_t kShort = 12;
  ASSERT_EQ(requests_[kShort].prompt.size(), 40u);
  const ExactAnswers got =
      answers({.step_tokens = 1, .batch = 1, .prefix_cache = false}, std::span(requests_).subspan(kShort, 1));
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got.begin()->second == expected_.at({kShort, 0}));
}

// Every prompt is computed whole; only the two choices of the last request share pages.
TEST_F(RealModelInvariance, BitsAreThoseOfAnEngineWithoutPrefixCache) {
  for (const Schedule& schedule :
       {Schedule{.step_tokens = 512, .batch = 16, .sharing = Sharing::kAlways, .prefix_cache = false},
        Schedule{.step_tokens = 64, .batch = 5, .sharing = Sharing::kOff, .prefix_cache = false}}) {
    SCOPED_TRACE(schedule.name());
    expect_the_same_answers(answers(schedule, [](const engine::EngineMetrics& metrics) {
      EXPECT_EQ(metrics.prefix_cache_hits.value(), 0u);
      EXPECT_GT(metrics.forks.value(), 0u);
    }));
  }
}

TEST_F(RealModelInvariance, BitsDoNotDependOnPreemption) {
  expect_the_same_answers_when_preempted({.step_tokens = 64, .batch = 5});
}

}  // namespace
}  // namespace headwater::testing
