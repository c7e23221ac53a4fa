#include "bench/serve/level.h"

#include <gtest/gtest.h>

#include <sstream>

namespace headwater::bench::serve {
namespace {

Answer complete(std::vector<double> chunk_s) {
  Answer answer;
  answer.end = Answer::End::kComplete;
  answer.completion_tokens = chunk_s.size();
  answer.prompt_tokens = 100;
  answer.cached_tokens = 64;
  answer.chunk_s = std::move(chunk_s);
  return answer;
}

Answer failed(std::string failure) {
  Answer answer;
  answer.failure = std::move(failure);
  answer.message = "why";
  return answer;
}

TEST(Distribution, PercentilesLieBetweenRanks) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Distribution hundred = distribution(values);
  EXPECT_DOUBLE_EQ(hundred.mean, 50);
  EXPECT_DOUBLE_EQ(hundred.p50, 50);
  EXPECT_DOUBLE_EQ(hundred.p90, 90);
  EXPECT_DOUBLE_EQ(hundred.p99, 99);
  EXPECT_DOUBLE_EQ(distribution({1, 2}).p50, 1.5);
  EXPECT_DOUBLE_EQ(distribution({7}).p99, 7);
  EXPECT_DOUBLE_EQ(distribution({}).p99, 0);
}

TEST(LevelFigures, DelaysAreThoseOfCompleteAnswers) {
  LevelResult result;
  result.seconds = 2;
  result.client_cpu_seconds = 0.1;
  result.answers = {complete({0.1, 0.2, 0.5}), complete({0.3}), failed("500")};
  result.answers[2].chunk_s = {5, 9};
  const LevelFigures figures = figures_of(result);
  EXPECT_EQ(figures.completed, 2u);
  EXPECT_EQ(figures.output_tokens, 4u);
  EXPECT_EQ(figures.prompt_tokens, 200u);
  EXPECT_EQ(figures.cached_tokens, 128u);
  EXPECT_DOUBLE_EQ(figures.requests_per_s, 1);
  EXPECT_DOUBLE_EQ(figures.output_tokens_per_s, 2);
  EXPECT_DOUBLE_EQ(figures.client_cpu_share, 0.05);
  EXPECT_DOUBLE_EQ(figures.ttft_ms.mean, 200);
  EXPECT_NEAR(figures.itl_ms.p50, 200, 1e-9);   // 100 and 300
  EXPECT_NEAR(figures.tpot_ms.p50, 200, 1e-9);  // (0.5 - 0.1) / 2; the answer of one token has none
}

TEST(LevelFigures, RejectionsAndVanishedClientsAreNoErrors) {
  LevelResult result;
  result.answers = {failed("500"), failed("closed"), failed("500"), Answer(), Answer()};
  result.answers[3].end = Answer::End::kRejected;
  result.answers[3].retry_after = true;
  result.answers[3].seconds = 0.004;
  result.answers[4].end = Answer::End::kVanished;
  const LevelFigures figures = figures_of(result);
  EXPECT_EQ(figures.failed(), 3u);
  EXPECT_EQ(figures.failures, (std::map<std::string, uint64_t>{{"500", 2}, {"closed", 1}}));
  EXPECT_EQ(figures.rejected, 1u);
  EXPECT_EQ(figures.retry_after, 1u);
  EXPECT_DOUBLE_EQ(figures.rejected_ms.p50, 4);
  EXPECT_EQ(figures.vanished, 1u);
  EXPECT_EQ(figures.first_message, "why");
}

TEST(LevelFigures, SayWhenNoStepSharedAPrefix) {
  const Exposition before = Exposition::parse("headwater:attention_steps_total{path=\"shared\"} 5\n");
  const Exposition flat = Exposition::parse(
      "headwater:attention_steps_total{path=\"shared\"} 5\nheadwater:attention_steps_total{path=\"flat\"} 4\n");
  const Exposition mixed = Exposition::parse("headwater:attention_steps_total{path=\"mixed\"} 1\n");
  const auto text_of = [&](const Exposition& after) {
    LevelFigures figures;
    figures.deltas = CounterDeltas::between(before, after);
    std::ostringstream out;
    print_level(figures, out);
    return out.str() + boost::json::serialize(level_line(figures));
  };
  EXPECT_NE(text_of(flat).find("NOTE: no shared-prefix step in this level"), std::string::npos);
  EXPECT_NE(text_of(flat).find("\"path_deltas\":{\"flat\":4,\"shared\":0,\"mixed\":0}"), std::string::npos);
  EXPECT_NE(text_of(Exposition::parse("up 1\n")).find("no headwater:attention_steps_total"), std::string::npos);
  EXPECT_EQ(CounterDeltas::between(Exposition::parse(""), mixed).shared(), true);
}

}  // namespace
}  // namespace headwater::bench::serve
