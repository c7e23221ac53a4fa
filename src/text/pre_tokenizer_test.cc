#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/byte_alphabet.h"
#include "text/pre_tokenizer_rules.h"

namespace headwater::text {
namespace {

using Kind = PreTokenizerStep::Kind;
using Words = std::vector<std::string>;

// Cuts each part by the steps that are left.
class Collector final : public PreTokenizer::Parts {
 public:
  Collector(const PreTokenizer& pre_tokenizer, size_t next_step, PreTokenizer::Scratch& scratch, Words& words)
      : pre_tokenizer_(pre_tokenizer), next_step_(next_step), scratch_(scratch), words_(words) {}

  void add(std::string_view part, bool begins) override {
    if (next_step_ == pre_tokenizer_.steps()) {
      words_.push_back(pre_tokenizer_.gives_symbols() ? bytes_of_spelling(part) : std::string(part));
      return;
    }
    Collector parts(pre_tokenizer_, next_step_ + 1, scratch_, words_);
    pre_tokenizer_.cut(next_step_, part, begins, scratch_, parts);
  }

 private:
  const PreTokenizer& pre_tokenizer_;
  size_t next_step_;
  PreTokenizer::Scratch& scratch_;
  Words& words_;
};

Words words(const PreTokenizer& pre_tokenizer, std::string_view text, bool begins = true) {
  Words found;
  PreTokenizer::Scratch scratch;
  Collector(pre_tokenizer, 0, scratch, found).add(text, begins);
  return found;
}

PreTokenizer named(std::string_view name) {
  return PreTokenizer::create(pre_tokenizer_rule(name).value().steps).value();
}

Words split_at_dashes(SplitBehavior behavior, bool is_inverted, std::string_view text) {
  const PreTokenizerStep step{.kind = Kind::kSplit, .pattern = {"-"}, .behavior = behavior, .is_inverted = is_inverted};
  return words(PreTokenizer::create({&step, 1}).value(), text);
}

TEST(PreTokenizer, AppliesEachExpressionToWhatTheOneBeforeLeft) {
  EXPECT_EQ(words(named("smollm"), "ab  12 cd"), (Words{"ab", "  ", "1", "2", " cd"}));
  EXPECT_EQ(words(named("gpt-2"), "ab  12 cd"), (Words{"ab", " ", " 12", " cd"}));
}

TEST(PreTokenizer, FollowsThePublishedPatterns) {
  EXPECT_EQ(words(named("gpt-2"), "It's IT'S"), (Words{"It", "'s", " IT", "'", "S"}));
  EXPECT_EQ(words(named("llama-bpe"), "IT'S 12345\n\n x"), (Words{"IT", "'S", " ", "123", "45", "\n\n", " x"}));
  EXPECT_EQ(words(named("qwen2"), "a12!\r\n"), (Words{"a", "1", "2", "!\r\n"}));
  EXPECT_EQ(words(named("laguna"), "It's\n\n a"), (Words{"It", "'s", "\n\n", " a"}));
  EXPECT_EQ(words(named("ufakzeka"), "It's"), (Words{"It", "'s"}));
  EXPECT_EQ(words(named("ufakzeka"), "Ankara'daki"), (Words{"Ankara", "'daki"}));
  EXPECT_EQ(words(named("exaone-moe"), " one two  three 12"), (Words{" one two", " ", " three", " ", "1", "2"}));
  EXPECT_EQ(words(named("youtu"), "字，한국어ABc12"), (Words{"字", "，", "한국어", "ABc", "1", "2"}));
  EXPECT_EQ(words(named("kimi-k2"), "字、字々abC한국's 1234"),
            (Words{"字", "、", "字々", "ab", "C한국's", " ", "123", "4"}));
  EXPECT_EQ(words(named("spark2_5"), "a12,\n\n字"), (Words{"a", "1", "2", ",", "\n", "\n", "字"}));
  EXPECT_EQ(words(named("minicpm5"), "a  1234"), (Words{"a", "  ", "123", "4"}));
}

TEST(PreTokenizer, TakesUnicodeWhiteSpaceForSpace) {
  EXPECT_EQ(words(named("gpt-2"), "\u00a0\u3000\u0085x"), (Words{"\u00a0\u3000", "\u0085", "x"}));
  EXPECT_EQ(words(named("gpt-2"), "a\u180eb"), (Words{"a", "\u180e", "b"}));  // Mongolian vowel separator is no space
}

TEST(PreTokenizer, JoinsMatchesAsTheBehaviorSays) {
  EXPECT_EQ(split_at_dashes(SplitBehavior::kRemoved, false, "-a--b-"), (Words{"a", "b"}));
  EXPECT_EQ(split_at_dashes(SplitBehavior::kIsolated, false, "-a--b-"), (Words{"-", "a", "-", "-", "b", "-"}));
  EXPECT_EQ(split_at_dashes(SplitBehavior::kContiguous, false, "-a--b-"), (Words{"-", "a", "--", "b", "-"}));
  EXPECT_EQ(split_at_dashes(SplitBehavior::kMergedWithPrevious, false, "-a--b-"), (Words{"-", "a-", "-", "b-"}));
  EXPECT_EQ(split_at_dashes(SplitBehavior::kMergedWithNext, false, "-a--b-"), (Words{"-a", "-", "-b", "-"}));
  EXPECT_EQ(split_at_dashes(SplitBehavior::kRemoved, true, "-a--b-"), (Words{"-", "-", "-", "-"}));
  EXPECT_EQ(split_at_dashes(SplitBehavior::kMergedWithPrevious, true, "-a--b-"), (Words{"-a", "-", "-b", "-"}));
}

TEST(PreTokenizer, PutsMarksForSpacesAndOneInFrontWhereAsked) {
  PreTokenizerStep step{.kind = Kind::kMetaspace, .prepend = PreTokenizerStep::Prepend::kFirst};
  const auto made = [&](std::string_view text, bool begins) {
    return words(PreTokenizer::create({&step, 1}).value(), text, begins);
  };
  EXPECT_EQ(made("ab  c", true), (Words{"▁ab", "▁", "▁c"}));
  EXPECT_EQ(made("ab c", false), (Words{"ab", "▁c"}));
  EXPECT_EQ(made(" ab", true), (Words{"▁ab"}));
  step.prepend = PreTokenizerStep::Prepend::kAlways;
  step.splits = false;
  EXPECT_EQ(made("ab c", false), (Words{"▁ab▁c"}));
}

TEST(PreTokenizer, GivesBytesBackWhereAStepLooksAtTheirSymbols) {
  // The symbol of the second byte of U+00B2 is "²", which is a number, and that of U+00E9's is not.
  EXPECT_EQ(words(named("falcon"), "a\u00b2\u00e9 1234"), (Words{"a", "\xC2", "\xB2", "\u00e9", "\x20", "123", "4"}));
}

TEST(PreTokenizer, TakesWhatBeginsTheTextForThatAtEveryStep) {
  const PreTokenizerStep cut{.kind = Kind::kSplit, .pattern = {"-"}, .behavior = SplitBehavior::kRemoved};
  const PreTokenizerStep mark{.kind = Kind::kMetaspace, .prepend = PreTokenizerStep::Prepend::kFirst};
  const PreTokenizerStep steps[] = {cut, mark};
  const PreTokenizer pre_tokenizer = PreTokenizer::create(steps).value();
  EXPECT_EQ(words(pre_tokenizer, "a-b c"), (Words{"▁a", "b", "▁c"}));
  EXPECT_EQ(words(pre_tokenizer, "-b"), (Words{"b"}));
  EXPECT_EQ(words(pre_tokenizer, "a", false), (Words{"a"}));
}

TEST(PreTokenizer, RefusesMoreStepsThanItReads) {
  const std::vector<PreTokenizerStep> steps(PreTokenizer::kStepsMax + 1, {.kind = Kind::kPrefixSpace});
  EXPECT_EQ(PreTokenizer::create(steps).status().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(PreTokenizer::create(std::span(steps).subspan(1)).is_ok());
}

TEST(PreTokenizer, KnowsTheNamesOfPublishedFiles) {
  for (const char* name :
       {"default",   "gpt-2",    "olmo",        "smollm",  "command-r", "llama-bpe",    "lfm2",     "dbrx",
        "glm4",      "minicpm5", "qwen2",       "qwen35",  "kormo",     "laguna",       "ufakzeka", "exaone-moe",
        "gpt-4o",    "talkie",   "youtu",       "kimi-k2", "tekken",    "seed-coder",   "bloom",    "bailingmoe2",
        "poro-chat", "viking",   "deepseek-v3", "hy_v4",   "spark2_5",  "deepseek-llm", "falcon",   "gemma4"}) {
    const auto rule = pre_tokenizer_rule(name);
    ASSERT_TRUE(rule.is_ok()) << rule.status().message();
    EXPECT_TRUE(PreTokenizer::create(rule->steps).is_ok()) << name;
  }
}

TEST(PreTokenizer, NamesTheKnownOnesWhenOneIsUnknown) {
  const Status status = pre_tokenizer_rule("no-such").status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("\"no-such\""));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("gpt-2, default, "));
}

}  // namespace
}  // namespace headwater::text
