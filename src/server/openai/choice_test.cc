#include "server/openai/choice.h"

#include <gtest/gtest.h>

#include <optional>

#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace headwater::server::openai {
namespace {

using engine::Emission;
using engine::FinishReason;

class ChoiceTest : public ::testing::Test {
 protected:
  static Emission token(TokenId id, FinishReason finish = FinishReason::kNone) {
    Emission emission;
    emission.token = id;
    emission.finish = finish;
    return emission;
  }

  // The text byte by byte (ids 0 to 255 are the bytes), the last one with `finish`. How many tokens were taken before the choice
  // asked to be ended; nothing if it did not ask.
  std::optional<size_t> feed(Choice& choice, std::string_view bytes, FinishReason finish, Delta& delta) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto reason = i + 1 == bytes.size() ? finish : FinishReason::kNone;
      if (choice.take(token(static_cast<uint8_t>(bytes[i]), reason), delta)) return i + 1;
      EXPECT_TRUE(text::is_valid_utf8(delta.content)) << delta.content;
    }
    return std::nullopt;
  }

  text::TestVocabulary vocabulary_{"gpt-2"};
  text::Tokenizer tokenizer_ = vocabulary_.tokenizer();
};

TEST_F(ChoiceTest, GivesTextAsItBecomesWhole) {
  Choice choice(tokenizer_, {});
  Delta delta;
  feed(choice, "a\xC4", FinishReason::kNone, delta);
  EXPECT_EQ(delta.content, "a");
  feed(choice, "\x8F", FinishReason::kNone, delta);
  EXPECT_EQ(delta.content, "aď");
  feed(choice, "\xF0\x9F", FinishReason::kLength, delta);  // cut inside a character
  EXPECT_EQ(delta.content, "aď\xEF\xBF\xBD");
  EXPECT_TRUE(delta.finished);
  EXPECT_EQ(delta.finish, FinishReason::kLength);
  EXPECT_EQ(choice.tokens(), 5u);
}

TEST_F(ChoiceTest, EndsBeforeAStopStringAndIgnoresWhatFollows) {
  Choice choice(tokenizer_, {.stops = {{"END"}}});
  Delta delta;
  EXPECT_EQ(feed(choice, "one E END two", FinishReason::kNone, delta), 9u);
  EXPECT_EQ(delta.content, "one E ");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_EQ(choice.tokens(), 9u);  // those of the stop string are generated too
  Delta later;
  EXPECT_FALSE(choice.take(token(-1, FinishReason::kStop), later));
  EXPECT_TRUE(later.empty());
  EXPECT_EQ(choice.tokens(), 9u);
}

TEST_F(ChoiceTest, NeedsNoEndFromTheEngineThatHasEndedAlready) {
  Choice choice(tokenizer_, {.stops = {{"END"}}});
  Delta delta;
  EXPECT_EQ(feed(choice, "xEND", FinishReason::kLength, delta), std::nullopt);
  EXPECT_EQ(delta.content, "x");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
}

TEST_F(ChoiceTest, GivesOutWhatWasHeldBackWhenTheTextEnds) {
  Choice choice(tokenizer_, {.stops = {{"END"}}});
  Delta delta;
  feed(choice, "xEN", FinishReason::kNone, delta);
  EXPECT_EQ(delta.content, "x");
  choice.take(token(tokenizer_.eos(), FinishReason::kStop), delta);
  EXPECT_EQ(delta.content, "xEN");
  EXPECT_EQ(choice.tokens(), 4u);  // the stop token counts, its spelling is not text
}

TEST_F(ChoiceTest, TakesNoStopStringBeforeTheLeastNumberOfTokens) {
  Choice choice(tokenizer_, {.stops = {{"x"}}, .tokens_min = 2});
  Delta delta;
  EXPECT_EQ(feed(choice, "xxax", FinishReason::kNone, delta), 4u);
  EXPECT_EQ(delta.content, "xxa");
}

TEST_F(ChoiceTest, SendsReasoningApartAndStopsInsideIt) {
  Choice choice(tokenizer_, {.stops = {{"STOP"}}, .split_reasoning = true});
  Delta delta;
  feed(choice, "<think>hm</think>yes", FinishReason::kLength, delta);
  EXPECT_EQ(delta.reasoning, "hm");
  EXPECT_EQ(delta.content, "yes");
  Choice stopped(tokenizer_, {.stops = {{"STOP"}}, .split_reasoning = true, .in_reasoning = true});
  Delta end;
  EXPECT_EQ(feed(stopped, "hm <STOP", FinishReason::kNone, end), 8u);
  EXPECT_EQ(end.reasoning, "hm <");
  EXPECT_EQ(end.content, "");
}

TEST_F(ChoiceTest, GivesLogprobsOfEveryTokenWithItsPlaceInTheText) {
  Choice choice(tokenizer_, {.stops = {{"END"}}, .want_logprobs = true, .text_offset = 10});
  Delta delta;
  Emission emission = token('E');
  emission.logprob = -1.5f;
  emission.top_count = 1;
  emission.top[0] = {'F', -0.5f};
  emission.cached_tokens = 7;
  choice.take(emission, delta);
  EXPECT_EQ(delta.content, "");  // held back; the logprobs are not
  ASSERT_EQ(delta.logprobs.size(), 1u);
  EXPECT_EQ(delta.logprobs[0].token, 'E');
  EXPECT_EQ(delta.logprobs[0].logprob, -1.5f);
  ASSERT_EQ(delta.logprobs[0].top.size(), 1u);
  EXPECT_EQ(delta.logprobs[0].top[0].token, 'F');
  feed(choice, "\xC4\x8Fz", FinishReason::kNone, delta);
  choice.take(token(tokenizer_.eos(), FinishReason::kStop), delta);
  std::vector<uint32_t> offsets;
  for (const TokenLogprob& logprob : delta.logprobs) offsets.push_back(logprob.text_offset);
  EXPECT_EQ(offsets, (std::vector<uint32_t>{10, 11, 12, 12, 13}));
  EXPECT_EQ(choice.cached_tokens(), 7u);
}

TEST_F(ChoiceTest, TellsAnEndWithoutAToken) {
  Choice choice(tokenizer_, {});
  Delta delta;
  EXPECT_FALSE(choice.take(token(-1, FinishReason::kFailed), delta));
  EXPECT_TRUE(choice.finished());
  EXPECT_EQ(delta.finish, FinishReason::kFailed);
  EXPECT_EQ(choice.tokens(), 0u);
}

}  // namespace
}  // namespace headwater::server::openai
