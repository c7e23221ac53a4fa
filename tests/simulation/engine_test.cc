// One behaviour at a time, on the scripted model: any wrong page shows as a wrong token.
#include "engine/engine.h"

#include <gmock/gmock.h>

#include "simulation/engine_under_test.h"

namespace headwater::testing {
namespace {

using engine::Emission;
using engine::EngineConfig;
using engine::FinishReason;
using engine::Request;
using engine::RequestId;
using ::testing::HasSubstr;

void expect_all_pages_home(const EngineUnderTest& test) {
  const kv::PagedCache& cache = test.engine->cache();
  EXPECT_EQ(cache.pages_held(), 0u);
  EXPECT_EQ(cache.pages_free() + cache.pages_cached(), cache.config().pages);
}

TEST(Engine, AnswersOneRequest) {
  EngineUnderTest test(small_config(), 16);
  const RequestId id = test.submit(make_request(random_tokens(9, 1), 12));
  test.run();
  test.expect_whole_answer(id);
  EXPECT_EQ(test.answers[id].emissions.size(), 12u) << "the end comes with the last token";
  EXPECT_EQ(test.decoder.tokens_computed(), 9u + 11u);
  expect_all_pages_home(test);
}

TEST(Engine, RefusesAtOnceWhatCanNeverFitWithBothNumbers) {
  EngineUnderTest test(small_config(), 8);  // 32 tokens
  const Status pool = test.engine->submit(make_request(random_tokens(20, 1), 13)).status();
  EXPECT_EQ(pool.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(pool.message(), HasSubstr("are 33"));
  EXPECT_THAT(pool.message(), HasSubstr("the 32 tokens"));
  const RequestId id = test.submit(make_request(random_tokens(20, 1), 12));
  test.run();
  test.expect_whole_answer(id);
}

TEST(Engine, RefusesWhatTheQueueCannotTakeNowAndTakesItLater) {
  EngineConfig config = small_config();
  config.queue_requests_max = 1;
  EngineUnderTest test(config, 16);
  test.submit(make_request({1, 2}, 2));
  EXPECT_EQ(test.engine->submit(make_request({3}, 2)).status().code(), ErrorCode::kExhausted);
  test.steps(1);  // admitted: the queue is empty
  test.submit(make_request({3}, 2));
  test.run();
  for (const auto& [id, request] : test.asked) test.expect_whole_answer(id);
}

TEST(Engine, EndsThousandsOfWaitingChoicesInOneStepBesideOneThatRuns) {
  EngineConfig config = small_config();
  config.queue_requests_max = 64;
  config.sequences_max = 1;
  EngineUnderTest test(config, 16);
  const RequestId runs = test.submit(make_request(random_tokens(9, 1), 12));
  test.steps(2);
  std::vector<RequestId> storm;
  for (int i = 0; i < 60; ++i) {
    Request request = make_request({1 + i % 7, 2}, 4);
    request.n = 128;
    request.priority = i % 2 == 0 ? -i : i;
    storm.push_back(test.submit(request));
  }
  const RequestId last = test.submit(make_request(random_tokens(7, 2), 5));
  test.steps(1);
  EXPECT_EQ(test.engine->snapshot().sequences_waiting, 60u * 128u + 1u);
  EXPECT_EQ(test.engine->snapshot().sequences.size(), engine::kSnapshotWaitingMax + 1);
  for (const RequestId id : storm) test.engine->cancel(id);
  test.steps(1);
  EXPECT_EQ(test.engine->snapshot().sequences.size(), 2u);
  test.run();
  test.expect_whole_answer(runs);
  test.expect_whole_answer(last);
  for (const RequestId id : storm) {
    EXPECT_THAT(test.answers[id].finished, ::testing::Each(FinishReason::kCancelled));
  }
  expect_all_pages_home(test);
}

TEST(Engine, PreemptsTheYoungestAndStillGivesItsText) {
  EngineUnderTest test(small_config(), 12);
  const RequestId old = test.submit(make_request(random_tokens(8, 1), 30));
  const RequestId young = test.submit(make_request(random_tokens(8, 2), 30));
  test.run();
  EXPECT_GT(test.engine->metrics().preemptions.value(), 0u);
  test.expect_whole_answer(old);
  test.expect_whole_answer(young);
  EXPECT_EQ(test.answers[old].emissions.size(), 30u);
  expect_all_pages_home(test);
}

TEST(Engine, PreemptsTheLowerPriorityThoughItIsOlder) {
  EngineUnderTest test(small_config(), 12);
  Request low = make_request(random_tokens(8, 1), 30);
  low.priority = 1;
  const RequestId low_id = test.submit(low);
  const RequestId high_id = test.submit(make_request(random_tokens(8, 2), 30));
  while (test.answers[high_id].finished[0] == FinishReason::kNone) {
    ASSERT_TRUE(test.step());
    test.collect();
  }
  EXPECT_EQ(test.engine->metrics().steps.value(), 30u) << "the one of high priority never stopped";
  EXPECT_GT(test.engine->metrics().preemptions.value(), 0u);
  EXPECT_EQ(test.answers[low_id].finished[0], FinishReason::kNone);
  test.run();
  test.expect_whole_answer(low_id);
  test.expect_whole_answer(high_id);
}

// Cancels the last of three requests after `steps`; the pages it had are free after the next step, the others unharmed.
void cancel_after(uint32_t steps, uint32_t sequences_max, Request third) {
  EngineConfig config = small_config();
  config.sequences_max = sequences_max;
  config.step_tokens_max = 12;
  EngineUnderTest test(config, 64);
  const RequestId a = test.submit(make_request(random_tokens(5, 1), 60));
  const RequestId b = test.submit(make_request(random_tokens(5, 2), 60));
  const RequestId c = test.submit(third);
  test.steps(steps);
  test.engine->cancel(c);
  test.steps(1);
  uint32_t pages_of_others = 0;
  test.collect();
  for (const engine::SnapshotSequence& sequence : test.engine->snapshot().sequences) {
    EXPECT_NE(sequence.request, c);
    pages_of_others += (sequence.computed_tokens + 3) / 4;
  }
  EXPECT_EQ(test.engine->cache().pages_held(), pages_of_others);
  for (const FinishReason reason : test.answers[c].finished) EXPECT_EQ(reason, FinishReason::kCancelled);
  test.run();
  test.expect_whole_answer(a);
  test.expect_whole_answer(b);
  expect_all_pages_home(test);
}

TEST(EngineCancel, BeforeItWasSeen) {
  cancel_after(0, 8, make_request(random_tokens(30, 3), 30));
}
TEST(EngineCancel, WhileQueued) {
  cancel_after(5, 2, make_request(random_tokens(30, 3), 30));
}
TEST(EngineCancel, InTheMiddleOfItsPrompt) {
  cancel_after(3, 8, make_request(random_tokens(60, 3), 30));
}
TEST(EngineCancel, WhileDecoding) {
  cancel_after(10, 8, make_request(random_tokens(9, 3), 50));
}
TEST(EngineCancel, OfForkedChoices) {
  Request request = make_request(random_tokens(9, 3), 50);
  request.n = 4;
  cancel_after(12, 8, request);
}
TEST(EngineCancel, OfChoicesThatWaitForThePrompt) {
  Request request = make_request(random_tokens(60, 3), 50);
  request.n = 4;
  cancel_after(3, 8, request);
}

TEST(EngineCancel, OfTheOneThatComputesAPrefixLetsTheWaiterGoAhead) {
  EngineConfig config = small_config();
  config.step_tokens_max = 8;
  EngineUnderTest test(config, 64);
  const std::vector<TokenId> prompt = random_tokens(40, 1);
  const RequestId first = test.submit(make_request(prompt, 5));
  const RequestId second = test.submit(make_request(prompt, 5));
  test.steps(2);
  EXPECT_EQ(test.engine->metrics().requests_waiting.value(), 1);
  test.engine->cancel(first);
  test.run();
  test.expect_whole_answer(second);
  EXPECT_EQ(test.answers[first].finished[0], FinishReason::kCancelled);
  EXPECT_EQ(test.answers[second].emissions[0].cached_tokens, 16u) << "the two chunks that were computed stay cached";
}

TEST(EngineCancel, TwiceAndAfterTheEndChangesNothing) {
  EngineUnderTest test(small_config(), 16);
  const RequestId id = test.submit(make_request({1, 2, 3}, 4));
  test.run();
  test.engine->cancel(id);
  test.engine->cancel(id + 99);
  test.run();
  test.expect_whole_answer(id);
}

TEST(EngineFinishChoice, EndsOneChoiceAndLeavesItsSiblings) {
  EngineUnderTest test(small_config(), 32);
  Request request = make_request(random_tokens(6, 1), 20);
  request.n = 2;
  request.sampling.temperature = 1;
  const RequestId id = test.submit(request);
  test.steps(5);
  test.engine->finish_choice(id, 1);
  test.run();
  EXPECT_EQ(test.answers[id].finished[1], FinishReason::kStop);
  EXPECT_LT(test.answers[id].tokens[1].size(), 6u);
  EXPECT_EQ(test.answers[id].tokens[0], expected_tokens(request, 0, 40));
}

TEST(EnginePrefix, ColdIdenticalPrefixesAreComputedOnce) {
  EngineConfig config = small_config();
  config.step_tokens_max = 16;
  EngineUnderTest test(config, 64);
  const std::vector<TokenId> preamble = random_tokens(40, 1);
  for (uint32_t i = 0; i < 4; ++i) test.submit(make_request(joined(preamble, random_tokens(2, 10 + i)), 3));
  test.run();
  for (const auto& [id, request] : test.asked) test.expect_whole_answer(id);
  EXPECT_EQ(test.decoder.tokens_computed(), 40u + 4 * (2 + 2))
      << "the preamble once, then each tail and two tokens back in";
  EXPECT_EQ(test.engine->metrics().prefix_cache_hits.value(), 3u * 40);
  EXPECT_EQ(test.engine->metrics().waits_for_prefix.value(), 3u);
  EXPECT_EQ(test.engine->cache().counters().pages_merged, 0u);
}

TEST(EnginePrefix, AFullyCachedPromptComputesItsLastTokenAlone) {
  EngineUnderTest test(small_config(1), 64);  // pages of one token: all but the last are attached
  const Request request = make_request(random_tokens(12, 1), 4);
  const RequestId cold = test.submit(request);
  test.run();
  const uint64_t computed_cold = test.decoder.tokens_computed();
  const RequestId warm = test.submit(request);
  test.run();
  test.expect_whole_answer(cold);
  test.expect_whole_answer(warm);
  EXPECT_EQ(test.answers[cold].tokens, test.answers[warm].tokens);
  EXPECT_EQ(test.decoder.tokens_computed() - computed_cold, 1u + 3u);
  EXPECT_EQ(test.answers[warm].emissions[0].cached_tokens, 11u);
  EXPECT_EQ(test.engine->metrics().prefix_cache_hits.value(), 11u);
}

TEST(EnginePrefix, APromptOfWholePagesComputesItsLastPageAgainAndSharesItAfterwards) {
  EngineUnderTest test(small_config(4), 64);
  const Request request = make_request(random_tokens(12, 1), 4);
  test.submit(request);
  test.run();
  const RequestId warm = test.submit(request);
  test.run();
  test.expect_whole_answer(warm);
  EXPECT_EQ(test.answers[warm].emissions[0].cached_tokens, 8u);
  EXPECT_EQ(test.engine->cache().counters().pages_merged, 1u);
}

TEST(EnginePrefix, IsNotSharedBetweenSalts) {
  EngineUnderTest test(small_config(), 64);
  Request request = make_request(random_tokens(12, 1), 4);
  test.submit(request);
  test.run();
  request.cache_salt = "tenant";
  const RequestId other = test.submit(request);
  test.run();
  test.expect_whole_answer(other);
  EXPECT_EQ(test.answers[other].emissions[0].cached_tokens, 0u);
}

TEST(EngineSampling, AppliesStopIdsMinimumAndLogProbabilities) {
  EngineUnderTest test(small_config(), 64);
  Request request = make_request(random_tokens(7, 1), 20);
  const std::vector<TokenId> free_run = expected_tokens(request, 0, 40);
  request.sampling.stop_ids = {free_run[3]};
  request.sampling.want_logprobs = true;
  request.sampling.top_logprobs = 3;
  const RequestId stopped = test.submit(request);
  request.sampling.tokens_min = 10;
  const RequestId held = test.submit(request);
  request.sampling.tokens_min = 0;
  request.sampling.ignore_stop_ids = true;
  const RequestId ignoring = test.submit(request);
  test.run();
  for (const RequestId id : {stopped, held, ignoring}) test.expect_whole_answer(id);
  EXPECT_EQ(test.answers[stopped].finished[0], FinishReason::kStop);
  EXPECT_EQ(test.answers[stopped].tokens[0].back(), free_run[3]);
  EXPECT_GE(test.answers[held].tokens[0].size(), 10u);
  EXPECT_EQ(test.answers[ignoring].tokens[0], free_run);
  const Emission& first = test.answers[stopped].emissions[0];
  ASSERT_EQ(first.top_count, 3u);
  EXPECT_EQ(first.top[0].token, first.token) << "greedy takes the most likely";
  EXPECT_EQ(first.top[0].logprob, first.logprob);
  EXPECT_LT(first.logprob, 0);
}

TEST(EngineOutbox, ARequestThatNobodyPollsPausesAndGivesItsPagesToOthers) {
  EngineConfig config = small_config();
  config.outbox_emissions_max = 3;
  EngineUnderTest test(config, 8);
  const RequestId silent = test.submit(make_request(random_tokens(8, 1), 20));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(test.step());
  EXPECT_FALSE(*test.step()) << "nothing to do until somebody polls";
  EXPECT_EQ(test.engine->cache().pages_held(), 3u);
  const RequestId other = test.submit(make_request(random_tokens(20, 2), 3));
  while (*test.step()) {
  }
  EXPECT_EQ(test.engine->metrics().preemptions.value(), 1u);
  Emission emission;
  std::vector<TokenId> tokens;
  while (test.engine->poll(other, {&emission, 1}) == 1) tokens.push_back(emission.token);
  EXPECT_EQ(tokens, expected_tokens(test.asked[other], 0, 40));
  while (test.answers[silent].finished[0] == FinishReason::kNone) {
    test.collect();
    ASSERT_TRUE(test.step());
  }
  test.expect_whole_answer(silent);
}

TEST(EngineFailure, OfTheDeviceEndsTheRequestsOfTheStepAndNoOthers) {
  EngineConfig config = small_config();
  config.sequences_max = 2;
  EngineUnderTest test(config, 64);
  const RequestId a = test.submit(make_request(random_tokens(6, 1), 10));
  Request two_choices = make_request(random_tokens(6, 2), 10);
  two_choices.n = 2;
  const RequestId b = test.submit(two_choices);
  const RequestId c = test.submit(make_request(random_tokens(6, 3), 10));
  test.steps(3);
  test.decoder.fail_next(1);
  const Result<bool> failed = test.step();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.status().message(), HasSubstr("injected"));
  test.collect();
  EXPECT_EQ(test.answers[a].finished[0], FinishReason::kFailed);
  EXPECT_EQ(test.answers[b].finished[0], FinishReason::kFailed);
  EXPECT_EQ(test.answers[b].finished[1], FinishReason::kFailed);
  test.run();
  test.expect_whole_answer(c);
  EXPECT_EQ(test.engine->metrics().finished[static_cast<size_t>(FinishReason::kFailed)].value(), 3u);
  const RequestId again = test.submit(test.asked[a]);  // nothing of the failed step is in the cache
  test.run();
  test.expect_whole_answer(again);
  expect_all_pages_home(test);
}

}  // namespace
}  // namespace headwater::testing
