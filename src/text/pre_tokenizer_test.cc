#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace headwater::text {
namespace {

std::vector<std::string_view> words(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string_view> found;
  std::vector<std::string_view> scratch;
  pre_tokenizer.split(text, found, scratch);
  return found;
}

PreTokenizer named(std::string_view name) {
  return PreTokenizer::create(pre_tokenizer_rule(name).value().expressions).value();
}

using Words = std::vector<std::string_view>;

TEST(PreTokenizer, AppliesEachExpressionToWhatTheOneBeforeLeft) {
  EXPECT_EQ(words(named("smollm"), "ab  12 cd"), (Words{"ab", "  ", "1", "2", " cd"}));
  EXPECT_EQ(words(named("gpt-2"), "ab  12 cd"), (Words{"ab", " ", " 12", " cd"}));
}

TEST(PreTokenizer, FollowsThePublishedPatterns) {
  EXPECT_EQ(words(named("gpt-2"), "It's IT'S"), (Words{"It", "'s", " IT", "'", "S"}));
  EXPECT_EQ(words(named("llama-bpe"), "IT'S 12345\n\n x"), (Words{"IT", "'S", " ", "123", "45", "\n\n", " x"}));
  EXPECT_EQ(words(named("qwen2"), "a12!\r\n"), (Words{"a", "1", "2", "!\r\n"}));
}

TEST(PreTokenizer, TakesUnicodeWhiteSpaceForSpace) {
  EXPECT_EQ(words(named("gpt-2"), "\u00a0\u3000\u0085x"), (Words{"\u00a0\u3000", "\u0085", "x"}));
  EXPECT_EQ(words(named("gpt-2"), "a\u180eb"), (Words{"a", "\u180e", "b"}));  // Mongolian vowel separator is no space
}

TEST(PreTokenizer, EndsInBoundedTimeWhereAnExpressionBacktracksExponentially) {
  const std::string_view expression = "(?:x+x+)+y";
  const PreTokenizer pre_tokenizer = PreTokenizer::create({&expression, 1}, 10'000).value();
  const std::string text(5000, 'x');
  std::string joined;
  for (const std::string_view word : words(pre_tokenizer, text)) joined += word;
  EXPECT_EQ(joined, text);
}

TEST(PreTokenizer, RefusesAnExpressionThatDoesNotCompile) {
  const std::string_view expression = "(";
  EXPECT_EQ(PreTokenizer::create({&expression, 1}).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace headwater::text
