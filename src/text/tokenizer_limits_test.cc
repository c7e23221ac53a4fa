// What a file of a tokenizer could make of a short text or of itself: memory and time stay in proportion to both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/normalizer.h"
#include "text/test_sentencepiece.h"
#include "text/test_vocabulary.h"

namespace headwater::text {
namespace {

using ::testing::HasSubstr;
using Kind = NormalizerStep::Kind;

NormalizerStep replace(std::string pattern, bool is_expression, std::string content) {
  return {.kind = Kind::kReplace, .pattern = {std::move(pattern), is_expression}, .content = std::move(content)};
}

Tokenizer with_normalizer(std::vector<NormalizerStep> steps) {
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().normalizer = std::move(steps);
  return vocabulary.tokenizer();
}

// "a" is a string of the map that stands for `replacement`; so is no other run of a, but the array leads round and round.
std::string charsmap(const std::string& replacement) {
  std::vector<uint32_t> units(0x362);
  units[0] = 0x100 << 10;
  units[0x100 ^ 'a'] = 'a' | 1u << 8 | 0x200u << 10;
  units[0x300] = 'a' | 0x61u << 10;
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  return std::string(reinterpret_cast<const char*>(&bytes), 4) +
         std::string(reinterpret_cast<const char*>(units.data()), bytes) + replacement + '\0';
}

TEST(TokenizerLimits, ATextThatANormalizerMultipliesIsRefusedAndTheNextIsNot) {
  const std::string ten(10, 'a');
  const std::vector<std::vector<NormalizerStep>> normalizers = {
      {replace("a", false, std::string(1024, 'a'))},
      {replace("a", true, std::string(1024, 'a'))},
      {replace("(?=a)", true, std::string(1024, 'a'))},  // of nothing
      std::vector<NormalizerStep>(20, replace("a", false, ten)),
      std::vector<NormalizerStep>(20, replace("a", true, ten)),
      {{.kind = Kind::kCharsmap, .content = charsmap(std::string(1024, 'a'))}},
      {{.kind = Kind::kCharsmap, .content = charsmap(std::string(1024, 'a')), .is_longest_prefix = true}},
      {replace("a", false, std::string(1024, 'a')), replace("a", false, "")},  // nothing is left in the end
  };
  for (const auto& steps : normalizers) {
    const Tokenizer tokenizer = with_normalizer(steps);
    const auto refused = tokenizer.encode(std::string(100'000, 'a'), SpecialTokens::kAsText);
    EXPECT_EQ(refused.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr("makes more than 6401024 bytes of the text"));
    EXPECT_TRUE(tokenizer.encode(std::string(100'000, 'b'), SpecialTokens::kAsText).is_ok());
    EXPECT_FALSE(tokenizer.encode_prompt(std::string(100'000, 'a')).is_ok());
  }
}

TEST(TokenizerLimits, WhatIsPutInFrontOfEachStretchCountsTogether) {
  const Tokenizer tokenizer = with_normalizer({{.kind = Kind::kPrepend, .content = std::string(1000, 'b')}});
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a[TOOL]";
  EXPECT_EQ(tokenizer.encode(text, SpecialTokens::kAsText).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(tokenizer.encode("a", SpecialTokens::kAsText).is_ok());
}

// U+FDFA becomes 18 characters, and each space of it a mark: the most that Unicode makes of a character.
TEST(TokenizerLimits, NoFormOfUnicodeIsRefused) {
  const Tokenizer tokenizer = with_normalizer({{.kind = Kind::kNfkc},
                                               {.kind = Kind::kNfkd},
                                               {.kind = Kind::kLowercase},
                                               {.kind = Kind::kPrepend, .content = " "},
                                               replace(" ", false, "\u2581")});
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "\uFDFA";
  EXPECT_TRUE(tokenizer.encode(text, SpecialTokens::kAsText).is_ok());
}

TEST(TokenizerLimits, AMapThatLeadsRoundTakesNoLongerForALongRun) {
  const Tokenizer tokenizer =
      with_normalizer({{.kind = Kind::kCharsmap, .content = charsmap("b"), .is_longest_prefix = true}});
  EXPECT_TRUE(tokenizer.encode(std::string(300'000, 'a'), SpecialTokens::kAsText).is_ok());  // of its square: a minute
}

TEST(TokenizerLimits, RefusesStepsAndContentsBeyondTheLimits) {
  const auto refusal = [](std::vector<NormalizerStep> steps) {
    const Status status = Normalizer::create(steps).status();
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
    return status.message();
  };
  EXPECT_TRUE(Normalizer::create(std::vector<NormalizerStep>(64, {.kind = Kind::kNfc})).is_ok());
  EXPECT_THAT(refusal(std::vector<NormalizerStep>(65, {.kind = Kind::kNfc})), HasSubstr("has 65 steps; at most 64"));
  EXPECT_THAT(refusal({replace("a", false, std::string(1025, 'b'))}), HasSubstr("puts 1025 bytes"));
  EXPECT_THAT(refusal({{.kind = Kind::kPrepend, .content = std::string(1025, 'b')}}), HasSubstr("at most 1024"));
}

TEST(TokenizerLimits, RefusesAnAddedTokenThatIsLongAsItIsLookedFor) {
  const std::string spelling(1025, 'a');
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().added.push_back({.spelling = spelling, .id = 3});
  EXPECT_THAT(Tokenizer::create(vocabulary.spec()).status().message(), HasSubstr("the added token 3 has 1025 bytes"));

  TestVocabulary prepending("gpt-2");
  prepending.spec().normalizer = {{.kind = Kind::kPrepend, .content = std::string(1020, 'a')}};
  prepending.spec().added.push_back({.spelling = "bbbbb", .id = 3, .is_normalized = true});
  EXPECT_THAT(Tokenizer::create(prepending.spec()).status().message(), HasSubstr("the added token 3 has 1025 bytes"));
}

TEST(TokenizerLimits, RefusesALongTokenOfAUnigramVocabulary) {
  const std::string spelling(1025, 'a');
  TestSentencePiece vocabulary(ModelKind::kUnigram);
  TokenizerSpec& spec = vocabulary.spec();
  spec.tokens.push_back(spelling);
  spec.types.push_back(TokenType::kNormal);
  spec.scores.push_back(-1);
  EXPECT_THAT(Tokenizer::create(spec).status().message(), HasSubstr("has 1025 bytes; at most 1024"));
}

}  // namespace
}  // namespace headwater::text
