// The engine's first guarantee on the default model: what a request is answered, to the last bit of every log
// probability, depends neither on batch mates nor on prompt chunks, sharing, the prefix cache or preemption.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "engine/real_engine.h"

namespace headwater::testing {
namespace {

using attention::Sharing;

struct Schedule {
  uint32_t step_tokens = 512;  // prompt chunks are at most this long
  uint32_t batch = 16;         // sequences that run at once
  Sharing sharing = Sharing::kAuto;
  bool prefix_cache = true;
  uint32_t pages = 400;

  std::string name() const {
    return fmt::format("steps of {} tokens, batches of {}, sharing {}, prefix cache {}, {} pages", step_tokens, batch,
                       to_string(sharing), prefix_cache ? "on" : "off", pages);
  }
};

engine::Request make_request(std::vector<TokenId> prompt, size_t index) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.sampling.tokens_max = 8 + static_cast<uint32_t>(index % 5) * 3;
  request.sampling.temperature = index % 2 == 0 ? 0.0f : 0.9f;
  request.sampling.top_p = 0.95f;
  request.sampling.seed = 1000 + index;
  request.sampling.want_logprobs = true;
  request.sampling.top_logprobs = 3;
  return request;
}

// 17 answers to 16 requests: prompts of 40 to 700 tokens, most of them behind one text (320 tokens), some behind a
// longer one that begins with it (544), three alone, and one prompt asked again for two choices.
std::vector<engine::Request> make_requests(const English& english) {
  std::vector<std::vector<TokenId>> prompts;
  for (uint32_t i = 0; i < 7; ++i) prompts.push_back(english.prompt(english.piece(0, 320), 560 + 40 * i, 9 + 5 * i));
  for (uint32_t i = 0; i < 4; ++i) prompts.push_back(english.prompt(english.piece(0, 544), 600 + 50 * i, 12 + 9 * i));
  prompts.push_back(english.prompt(english.piece(0, 544), 700, 156));
  for (const uint32_t tokens : {40u, 64u, 101u}) prompts.push_back(english.prompt({}, 860 + tokens, tokens));
  prompts.push_back(prompts[0]);
  std::vector<engine::Request> requests;
  for (size_t i = 0; i < prompts.size(); ++i) requests.push_back(make_request(prompts[i], i));
  requests.back().n = 2;
  return requests;
}

class RealModelInvariance : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<LoadedModel> loaded = load_default_model("cpu");
    ASSERT_TRUE(loaded) << loaded.status().message();
    ASSERT_TRUE(loaded->backend->info().invariant);
    const Result<English> english = English::read();
    ASSERT_TRUE(english) << english.status().message();
    loaded_ = std::make_unique<LoadedModel>(std::move(loaded).value());
    requests_ = make_requests(*english);
    expected_ = answers(Schedule{});
  }
  static void TearDownTestSuite() { loaded_.reset(); }

  // What the engine counted goes to `look`, where a test wants to know that its schedule was what it says.
  static ExactAnswers answers(const Schedule& schedule,
                              const std::function<void(const engine::EngineMetrics&)>& look = nullptr) {
    return answers(schedule, requests_, look);
  }
  static ExactAnswers answers(const Schedule& schedule, std::span<const engine::Request> requests,
                              const std::function<void(const engine::EngineMetrics&)>& look = nullptr) {
    engine::EngineConfig config;
    config.context_max = 768;
    config.sequences_max = schedule.batch;
    config.step_tokens_max = schedule.step_tokens;
    config.prefix_cache = schedule.prefix_cache;
    config.kv_bytes = kv_bytes_of(*loaded_, schedule.pages);
    config.attention.sharing = schedule.sharing;
    const Result<RealEngine> real = create_real_engine(*loaded_, config);
    EXPECT_TRUE(real) << real.status().message();
    if (!real) return {};
    const Result<ExactAnswers> answers = answer_all(*real->engine, requests);
    EXPECT_TRUE(answers) << answers.status().message();
    if (look) look(real->engine->metrics());
    return answers ? *answers : ExactAnswers();
  }

  static void expect_the_same_answers(const ExactAnswers& got) { expect_the_same_answers(got, expected_); }
  static void expect_the_same_answers(const ExactAnswers& got, const ExactAnswers& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [key, answer] : expected) {
      const auto found = got.find(key);
      ASSERT_NE(found, got.end());
      EXPECT_EQ(found->second.tokens, answer.tokens) << "request " << key.first << " choice " << key.second;
      EXPECT_TRUE(found->second == answer)
          << "request " << key.first << " choice " << key.second << ": the log probabilities differ";
    }
  }

  static inline std::unique_ptr<LoadedModel> loaded_;
  static inline std::vector<engine::Request> requests_;
  static inline ExactAnswers expected_;
};

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

// Answers of three pages each in a pool for half of them: some sequences give their pages up and are computed again.
TEST_F(RealModelInvariance, BitsDoNotDependOnPreemption) {
  std::vector<engine::Request> requests(requests_.begin(), requests_.begin() + 5);
  for (engine::Request& request : requests) {
    request.prompt.erase(request.prompt.begin(), request.prompt.begin() + 256);
    request.sampling.tokens_max = 96;
  }
  const ExactAnswers expected = answers({.step_tokens = 64, .batch = 5}, requests);
  ASSERT_EQ(expected.size(), requests.size());
  for (const bool prefix_cache : {true, false}) {
    const Schedule schedule{.step_tokens = 64, .batch = 5, .prefix_cache = prefix_cache, .pages = 16};
    SCOPED_TRACE(schedule.name());
    const auto look = [&](const engine::EngineMetrics& metrics) {
      EXPECT_GT(metrics.preemptions.value(), 0u);
      EXPECT_EQ(metrics.evictions.value() > 0, prefix_cache);
    };
    expect_the_same_answers(answers(schedule, requests, look), expected);
  }
}

}  // namespace
}  // namespace headwater::testing
