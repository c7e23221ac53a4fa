// Submitters, cancellers, pollers and a reader of metrics against one engine thread. Meant for the thread sanitizer.
#include <atomic>
#include <mutex>
#include <thread>

#include "simulation/engine_under_test.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kSubmitters = 3;
constexpr uint32_t kRequestsEach = 40;

struct Shared {
  std::mutex mutex;
  std::map<engine::RequestId, engine::Request> asked;
  std::map<engine::RequestId, std::map<uint32_t, std::vector<TokenId>>> tokens;
  std::map<engine::RequestId, std::map<uint32_t, engine::FinishReason>> finished;
  std::atomic<uint32_t> choices_asked{0};
  std::atomic<uint32_t> choices_finished{0};
  std::atomic<uint32_t> submitters_left{kSubmitters};
  bool all_done() const { return submitters_left == 0 && choices_finished == choices_asked; }
};

void submit_many(engine::Engine& engine, Shared& shared, uint32_t seed) {
  Random random(seed);
  const std::vector<TokenId> preamble = random_tokens(20, 1);
  for (uint32_t i = 0; i < kRequestsEach;) {
    engine::Request request =
        make_request(joined(preamble, random_tokens(random.between(0, 9), random())), random.between(1, 24));
    request.n = random.between(1, 3);
    request.priority = static_cast<int32_t>(random.below(2));
    const Result<engine::RequestId> id = engine.submit(request);
    if (!id) {
      ASSERT_EQ(id.status().code(), ErrorCode::kExhausted) << id.status().message();
      std::this_thread::yield();
      continue;
    }
    ++i;
    shared.choices_asked += request.n;
    std::lock_guard lock(shared.mutex);
    shared.asked[*id] = request;
  }
  --shared.submitters_left;
}

void cancel_some(engine::Engine& engine, Shared& shared) {
  Random random(77);
  while (!shared.all_done()) {
    const engine::RequestId id = random.between(1, kSubmitters * kRequestsEach + 5);  // unknown ones too
    if (id % 5 == 0) engine.cancel(id);
    if (id % 7 == 0) engine.finish_choice(id, random.below(3));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void poll_all(engine::Engine& engine, Shared& shared) {
  std::array<engine::Emission, 5> emissions;
  while (!shared.all_done()) {
    // Taken under one lock, so that two pollers do not write down one request's tokens in the wrong order.
    std::lock_guard lock(shared.mutex);
    const size_t count = engine.poll_any(emissions);
    for (const engine::Emission& emission : std::span(emissions).first(count)) {
      if (emission.token >= 0) shared.tokens[emission.request][emission.choice].push_back(emission.token);
      if (emission.finish == engine::FinishReason::kNone) continue;
      EXPECT_TRUE(shared.finished[emission.request].emplace(emission.choice, emission.finish).second);
      ++shared.choices_finished;
    }
  }
}

TEST(EngineThreads, SubmitCancelAndPollBesideTheEngineThread) {
  engine::EngineConfig config = small_config();
  config.queue_requests_max = 16;
  config.outbox_emissions_max = 12;
  EngineUnderTest test(config, 40, 200);
  const std::unique_ptr<engine::Engine>& engine = test.engine;
  Shared shared;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kSubmitters; ++i) threads.emplace_back([&, i] { submit_many(*engine, shared, i); });
  threads.emplace_back([&] { cancel_some(*engine, shared); });
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { poll_all(*engine, shared); });
  threads.emplace_back([&] {
    while (!shared.all_done()) {
      EXPECT_LE(engine->metrics().requests_running.value(), config.sequences_max);
      std::this_thread::yield();
    }
    engine->stop();
  });

  while (!shared.all_done()) {
    const Result<bool> stepped = engine->step();
    ASSERT_TRUE(stepped) << stepped.status().message();
    if (!*stepped) engine->wait_for_work(1'000'000);
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(engine->audit());
  EXPECT_EQ(engine->cache().pages_held(), 0u);
  EXPECT_EQ(shared.asked.size(), kSubmitters * kRequestsEach);
  for (const auto& [id, request] : shared.asked) {
    for (uint32_t choice = 0; choice < request.n; ++choice) {
      const std::vector<TokenId> expected = expected_tokens(request, choice, kTestVocabulary);
      const std::vector<TokenId>& got = shared.tokens[id][choice];
      const engine::FinishReason finish = shared.finished[id][choice];
      ASSERT_LE(got.size(), expected.size());
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
      if (finish != engine::FinishReason::kLength) continue;
      EXPECT_EQ(got.size(), expected.size());
    }
  }
}

TEST(EngineThreads, WaitForWorkWakesOnSubmitAndOnStop) {
  EngineUnderTest test(small_config(), 20);
  EXPECT_FALSE(test.engine->wait_for_work(1000));
  std::thread submitter([&] { (void)test.engine->submit(make_request({1, 2, 3}, 1)); });
  EXPECT_TRUE(test.engine->wait_for_work(60'000'000'000));
  submitter.join();
  ASSERT_TRUE(test.step());
  std::thread stopper([&] { test.engine->stop(); });
  EXPECT_FALSE(test.engine->wait_for_work(60'000'000'000));
  stopper.join();
}

}  // namespace
}  // namespace headwater::testing
