// The engine one step ahead of its device: when it is, when it may not be, and what becomes of the step in flight.
#include <gmock/gmock.h>

#include "simulation/engine_under_test.h"

namespace headwater::testing {
namespace {

using engine::FinishReason;
using engine::Request;
using engine::RequestId;
using ::testing::HasSubstr;

class EngineAhead : public ::testing::Test {
 protected:
  EngineAhead() { tests_run_ahead = true; }

  static uint64_t steps(const EngineUnderTest& test) { return test.engine->metrics().steps.value(); }
};

TEST_F(EngineAhead, BeginsEveryStepOfSteadyDecodingBeforeTheOneBeforeHasAnswered) {
  EngineUnderTest test(small_config(), 64);
  for (uint32_t i = 0; i < 3; ++i) test.submit(make_request(random_tokens(5 + i, i), 40));
  test.run();
  for (const auto& [id, request] : test.asked) test.expect_whole_answer(id);
  EXPECT_EQ(steps(test), 40u) << "one answer a call, as without";
  EXPECT_EQ(test.late_backend.steps_begun_ahead(), 38u) << "all but the prompts and the first decode";
  EXPECT_EQ(test.decoder.tokens_computed(), 5u + 6u + 7u + 3u * 39u) << "whose end is known gets no row too many";
}

TEST_F(EngineAhead, IsNeverWhereItIsSwitchedOff) {
  engine::EngineConfig config = small_config();
  config.run_ahead = false;
  EngineUnderTest test(config, 64);
  const RequestId id = test.submit(make_request(random_tokens(5, 1), 40));
  test.run();
  test.expect_whole_answer(id);
  EXPECT_EQ(test.late_backend.steps_begun_ahead(), 0u);
}

TEST_F(EngineAhead, WaitsForTheTokenThatAPenaltyCounts) {
  for (const auto penalty : {&engine::SamplingParams::repetition_penalty, &engine::SamplingParams::frequency_penalty,
                             &engine::SamplingParams::presence_penalty}) {
    EngineUnderTest test(small_config(), 64);
    Request request = make_request(random_tokens(5, 1), 20);
    request.sampling.*penalty = 1.5f;
    const RequestId counts = test.submit(request);
    const RequestId other = test.submit(make_request(random_tokens(7, 2), 40));
    test.run();
    test.expect_whole_answer(counts);
    test.expect_whole_answer(other);
    EXPECT_EQ(test.late_backend.steps_begun_ahead(), 20u) << "behind the last step of the one that counts";
  }
}

TEST_F(EngineAhead, LetsNewRequestsInAtTheStepAfterTheOneInFlight) {
  EngineUnderTest test(small_config(), 64);
  const RequestId first = test.submit(make_request(random_tokens(5, 1), 30));
  test.steps(5);
  const RequestId second = test.submit(make_request(random_tokens(6, 2), 10));
  test.steps(2);
  test.collect();
  EXPECT_EQ(test.answers[second].tokens[0].size(), 1u);
  test.run();
  test.expect_whole_answer(first);
  test.expect_whole_answer(second);
}

TEST_F(EngineAhead, DropsTheTokenBehindAStopTokenAndTheRequestWithIt) {
  EngineUnderTest test(small_config(), 64);
  Request request = make_request(random_tokens(7, 1), 30);
  request.sampling.stop_ids = {expected_tokens(request, 0, kTestVocabulary)[9]};
  const std::vector<TokenId> expected = expected_tokens(request, 0, kTestVocabulary);
  ASSERT_GE(expected.size(), 3u);
  const RequestId stops = test.submit(request);
  const RequestId other = test.submit(make_request(random_tokens(8, 2), 30));
  test.run();
  test.expect_whole_answer(stops);
  test.expect_whole_answer(other);
  EXPECT_EQ(test.answers[stops].finished[0], FinishReason::kStop);
  EXPECT_EQ(test.decoder.tokens_computed(), 7u + expected.size() + 8u + 29u) << "one row for nobody";
  EXPECT_EQ(test.engine->cache().pages_held(), 0u);
}

TEST_F(EngineAhead, GivesThePagesOfACancelledRequestBackWhileItsRowIsInFlight) {
  EngineUnderTest test(small_config(), 8);
  const RequestId gone = test.submit(make_request(random_tokens(14, 1), 18));
  test.steps(4);
  test.collect();
  const size_t tokens = test.answers[gone].tokens[0].size();
  test.engine->cancel(gone);
  const RequestId next = test.submit(make_request(random_tokens(15, 2), 17));  // the whole pool: it writes those pages
  test.steps(1);
  EXPECT_EQ(test.engine->cache().pages_held(), 0u);
  test.run();
  EXPECT_EQ(test.answers[gone].finished[0], FinishReason::kCancelled);
  EXPECT_EQ(test.answers[gone].tokens[0].size(), tokens);
  test.expect_whole_answer(next);
}

// Two requests decode, with a step in flight; then the device fails as `fail` makes it.
void fail_and_recover(EngineUnderTest& test, const std::function<void()>& fail, const char* message) {
  const RequestId a = test.submit(make_request(random_tokens(6, 1), 10));
  const RequestId b = test.submit(make_request(random_tokens(6, 2), 10));
  test.steps(4);
  ASSERT_GT(test.late_backend.steps_begun_ahead(), 0u);
  fail();
  const Result<bool> failed = test.step();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.status().message(), HasSubstr(message));
  const uint64_t steps = test.engine->metrics().steps.value();
  EXPECT_FALSE(*test.step()) << "nothing is left in flight, and the error was told once";
  EXPECT_EQ(test.engine->metrics().steps.value(), steps);
  test.collect();
  EXPECT_EQ(test.answers[a].finished[0], FinishReason::kFailed);
  EXPECT_EQ(test.answers[b].finished[0], FinishReason::kFailed);
  EXPECT_EQ(test.engine->metrics().finished[static_cast<size_t>(FinishReason::kFailed)].value(), 2u);
  EXPECT_EQ(test.engine->cache().pages_held(), 0u);
  const RequestId again = test.submit(test.asked[a]);
  test.run();
  test.expect_whole_answer(again);
}

TEST_F(EngineAhead, FailsBothStepsInFlightWhenOneFails) {
  EngineUnderTest test(small_config(), 64);
  fail_and_recover(
      test, [&] { test.decoder.fail_next(1); }, "the device failed");
}

TEST_F(EngineAhead, FailsTheStepInFlightWhenTheNextCannotBeBegun) {
  EngineUnderTest test(small_config(), 64);
  fail_and_recover(
      test, [&] { test.late_decoder.fail_next_launch(); }, "the launch failed");
}

TEST_F(EngineAhead, IsWaitedForWhenTheEngineGoes) {
  EngineUnderTest test(small_config(), 64);
  test.submit(make_request(random_tokens(5, 1), 40));
  test.steps(5);
  EXPECT_TRUE(test.engine->wait_for_work(0)) << "a step in flight is work";
  EXPECT_EQ(test.late_backend.steps_waiting(), 1u);
  test.engine->stop();
  test.engine.reset();
  EXPECT_EQ(test.late_backend.steps_waiting(), 0u);
}

TEST_F(EngineAhead, KeepsItsStepThoughAnotherEngineOfTheDeviceIsRefusedMeanwhile) {
  EngineUnderTest test(small_config(), 64);
  LateDecoder decoder(test.late_backend, kTestVocabulary, 400);
  engine::EngineConfig config = small_config();
  config.run_ahead = false;
  config.kv_bytes = decoder.kv_bytes(64, config.page_size);
  const auto create = [&] { return engine::Engine::create(config, decoder, test.late_backend, &test.clock); };
  const auto other = create();
  ASSERT_TRUE(other) << other.status().message();
  const RequestId id = test.submit(make_request(random_tokens(5, 1), 40));
  test.steps(5);
  ASSERT_EQ(test.late_backend.steps_waiting(), 1u);

  const Request request = make_request(random_tokens(7, 2), 10);
  const Result<RequestId> refused = (*other)->submit(request);
  EXPECT_EQ((*other)->step().status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create().status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test.late_backend.steps_waiting(), 1u);
  engine::Emission emission;
  ASSERT_EQ((*other)->poll(*refused, {&emission, 1}), 1u);
  EXPECT_EQ(emission.finish, FinishReason::kFailed);
  test.run();
  test.expect_whole_answer(id);

  const Result<RequestId> taken = (*other)->submit(request);
  while (*(*other)->step()) {
  }
  std::vector<TokenId> tokens;
  while ((*other)->poll(*taken, {&emission, 1}) == 1) tokens.push_back(emission.token);
  EXPECT_EQ(tokens, expected_tokens(request, 0, kTestVocabulary));
}

}  // namespace
}  // namespace headwater::testing
