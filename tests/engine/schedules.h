// Schedules of the engine on the default model, and a fixture that answers the same requests under any of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/real_engine.h"

namespace headwater::testing {

using attention::Sharing;

struct Schedule {
  uint32_t step_tokens = 512;  // prompt chunks are at most this long
  uint32_t batch = 16;         // sequences that run at once
  Sharing sharing = Sharing::kAuto;
  bool prefix_cache = true;
  uint32_t pages = 400;
  bool run_ahead = true;  // where the back end does

  std::string name() const {
    return fmt::format("steps of {} tokens, batches of {}, sharing {}, prefix cache {}, {} pages{}", step_tokens, batch,
                       to_string(sharing), prefix_cache ? "on" : "off", pages, run_ahead ? "" : ", not ahead");
  }
};

inline engine::Request make_request(std::vector<TokenId> prompt, size_t index) {
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
inline std::vector<engine::Request> make_requests(const English& english) {
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

// Backend::kName: of the registry. Where it does not run here, nothing is loaded.
template <typename Backend>
class RealModelSchedules : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<LoadedModel> loaded = load_default_model(Backend::kName, {.invariant = true});
    if (loaded.status().code() == ErrorCode::kUnsupported) return;
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
    config.run_ahead = schedule.run_ahead;
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

  // Answers of three pages each in a pool for half of them: some sequences give their pages up and are computed again.
  static void expect_the_same_answers_when_preempted(Schedule schedule) {
    std::vector<engine::Request> requests(requests_.begin(), requests_.begin() + 5);
    for (engine::Request& request : requests) {
      request.prompt.erase(request.prompt.begin(), request.prompt.begin() + 256);
      request.sampling.tokens_max = 96;
    }
    const ExactAnswers expected = answers(schedule, requests);
    ASSERT_EQ(expected.size(), requests.size());
    schedule.pages = 16;
    for (const bool prefix_cache : {true, false}) {
      schedule.prefix_cache = prefix_cache;
      SCOPED_TRACE(schedule.name());
      const auto look = [&](const engine::EngineMetrics& metrics) {
        EXPECT_GT(metrics.preemptions.value(), 0u);
        EXPECT_EQ(metrics.evictions.value() > 0, prefix_cache);
      };
      expect_the_same_answers(answers(schedule, requests, look), expected);
    }
  }

  static inline std::unique_ptr<LoadedModel> loaded_;
  static inline std::vector<engine::Request> requests_;
  static inline ExactAnswers expected_;
};

}  // namespace headwater::testing
