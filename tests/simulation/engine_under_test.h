// An engine over the scripted model, and the answers it gave, for tests that look at one behaviour at a time.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "simulation/late_device.h"

namespace headwater::testing {

inline constexpr uint32_t kTestVocabulary = 40;

struct Answer {
  std::vector<std::vector<TokenId>> tokens;    // [n]
  std::vector<engine::FinishReason> finished;  // [n]
  std::vector<engine::Emission> emissions;     // all, in order
};

inline engine::Request make_request(std::vector<TokenId> prompt, uint32_t tokens_max) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.sampling.tokens_max = tokens_max;
  request.sampling.temperature = 0;
  return request;
}

inline std::vector<TokenId> random_tokens(uint32_t count, uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(kTestVocabulary));
  return tokens;
}

inline std::vector<TokenId> joined(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// Small pages and cuts, sharing wherever it is legal.
inline engine::EngineConfig small_config(uint32_t page_size = 4) {
  engine::EngineConfig config;
  config.sequences_max = 8;
  config.step_tokens_max = 64;
  config.page_size = page_size;
  config.kv_dtype = DType::kF32;
  config.attention.sharing = attention::Sharing::kAlways;
  config.attention.cut = page_size;
  return config;
}

// Whether engines under test run on the late device: the test program's argument --runs-ahead.
inline bool tests_run_ahead = false;

class EngineUnderTest {
 public:
  EngineUnderTest(engine::EngineConfig config, uint32_t pages, uint32_t context_max = 400,
                  std::vector<uint32_t> windows = {0})
      : late_decoder(late_backend, kTestVocabulary, context_max, windows),
        host_decoder(host_backend, kTestVocabulary, context_max, windows) {
    config.kv_bytes = decoder.kv_bytes(pages, config.page_size);
    auto created = engine::Engine::create(config, decoder, backend, &clock);
    EXPECT_TRUE(created) << created.status().message();
    engine = std::move(*created);
  }

  engine::RequestId submit(const engine::Request& request) {
    Result<engine::RequestId> id = engine->submit(request);
    EXPECT_TRUE(id) << id.status().message();
    asked[*id] = request;
    answers[*id].tokens.resize(request.n);
    answers[*id].finished.resize(request.n);
    return *id;
  }

  Result<bool> step() {
    clock.advance_ns(1'000'000);
    Result<bool> stepped = engine->step();
    const Status audit = engine->audit();
    EXPECT_TRUE(audit) << audit.message();
    return stepped;
  }
  void steps(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) EXPECT_TRUE(step());
  }

  void collect() {
    engine::Emission emission;
    while (engine->poll_any({&emission, 1}) == 1) {
      Answer& answer = answers[emission.request];
      if (emission.token >= 0) answer.tokens[emission.choice].push_back(emission.token);
      EXPECT_EQ(answer.finished[emission.choice], engine::FinishReason::kNone) << "an emission after the last one";
      answer.finished[emission.choice] = emission.finish;
      answer.emissions.push_back(emission);
    }
  }

  void run() {  // until there is nothing to do
    for (uint32_t i = 0; i < 10'000; ++i) {
      const Result<bool> stepped = step();
      ASSERT_TRUE(stepped) << stepped.status().message();
      collect();
      if (!*stepped) return;
    }
    FAIL() << "not finished after 10,000 steps";
  }

  void expect_whole_answer(engine::RequestId id) {
    for (uint32_t choice = 0; choice < asked[id].n; ++choice) {
      EXPECT_EQ(answers[id].tokens[choice],
                expected_tokens(asked[id], choice, kTestVocabulary, decoder.shape().windows))
          << "choice " << choice;
      EXPECT_TRUE(answers[id].finished[choice] == engine::FinishReason::kLength ||
                  answers[id].finished[choice] == engine::FinishReason::kStop);
    }
  }

  ManualClock clock;
  LateBackend late_backend{kTestVocabulary};
  LateDecoder late_decoder;
  ScriptedBackend host_backend{kTestVocabulary};
  ScriptedDecoder host_decoder;
  ScriptedBackend& backend = tests_run_ahead ? late_backend : host_backend;
  ScriptedDecoder& decoder = tests_run_ahead ? late_decoder : host_decoder;
  std::unique_ptr<engine::Engine> engine;
  std::map<engine::RequestId, engine::Request> asked;
  std::map<engine::RequestId, Answer> answers;
};

}  // namespace headwater::testing
