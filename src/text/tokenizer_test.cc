#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "text/test_vocabulary.h"

namespace headwater::text {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> spellings(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> bytes;
  for (const TokenId id : ids) bytes.emplace_back(tokenizer.bytes_of(id));
  return bytes;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                SpecialTokens special = SpecialTokens::kAsText) {
  return spellings(tokenizer, tokenizer.encode(text, special));
}

using Pieces = std::vector<std::string>;

TEST(Tokenizer, MergesByRankAndTheLeftmostOfEquals) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(pieces(tokenizer, "hello hello"), (Pieces{"hello", " hello"}));
  EXPECT_EQ(pieces(tokenizer, "aaaaa"), (Pieces{"aaaa", "a"}));
  EXPECT_EQ(pieces(tokenizer, "aaab"), (Pieces{"aa", "ab"}));
  EXPECT_EQ(pieces(tokenizer, ""), Pieces{});
}

TEST(Tokenizer, KnowsTheBytesOfItsLongestToken) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(tokenizer.token_bytes_max(), std::string_view("<|im_end|><tool>").size());
}

TEST(Tokenizer, KeepsControlTokensAsTextUnlessAsked) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(pieces(tokenizer, "a<s>", SpecialTokens::kParse), (Pieces{"a", "<s>"}));
  EXPECT_EQ(pieces(tokenizer, "a<s>"), (Pieces{"a", "<", "s", ">"}));
}

TEST(Tokenizer, TakesTheLongestAddedTokenThatTheTextMaySpell) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(pieces(tokenizer, "<|im_end|><tool><|im_end|>", SpecialTokens::kParse),
            (Pieces{"<|im_end|><tool>", "<|im_end|>"}));
  EXPECT_EQ(pieces(tokenizer, "<|im_end|><tool>"), (Pieces{"<|im_end|><tool>"}));
  EXPECT_EQ(pieces(tokenizer, "[TOOL][TOOL"), (Pieces{"[TOOL]", "[", "T", "O", "O", "L"}));
}

TEST(Tokenizer, FindsControlTokensOnlyWhereTheirWholeSpellingIsOwned) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  const auto encode = [&](std::initializer_list<TextPart> parts) {
    std::vector<TokenId> ids;
    tokenizer.encode(std::span(parts.begin(), parts.size()), ids);
    return spellings(tokenizer, ids);
  };
  const auto owned = SpecialTokens::kParse;
  const auto foreign = SpecialTokens::kAsText;
  EXPECT_EQ(encode({{"<s", owned}, {">", owned}}), (Pieces{"<s>"}));
  EXPECT_EQ(encode({{"<s", owned}, {">", foreign}}), (Pieces{"<", "s", ">"}));
  EXPECT_EQ(encode({{"<", foreign}, {"s>", owned}}), (Pieces{"<", "s", ">"}));
  EXPECT_EQ(encode({{"<s>", foreign}, {"<s>", owned}, {"<s>", foreign}}),
            (Pieces{"<", "s", ">", "<s>", "<", "s", ">"}));
  EXPECT_EQ(encode({{"hel", owned}, {"", foreign}, {"lo", foreign}}), (Pieces{"hello"}));
}

TEST(Tokenizer, ReplacesEachMaximalInvalidSequence) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  const auto round_trip = [&](std::string_view text) {
    return tokenizer.decode(tokenizer.encode(text, SpecialTokens::kAsText), true);
  };
  EXPECT_EQ(round_trip("a\xFF\xFE"
                       "b"),
            "a\uFFFD\uFFFDb");
  EXPECT_EQ(round_trip("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(round_trip("\xE2\x82"
                       "a\xED\xA0\x80"),
            "\uFFFDa\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(round_trip("\xC0\x80\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(round_trip("é😀\u0301"), "é😀\u0301");
}

TEST(Tokenizer, DropsBytesThatTheVocabularyHasNoSymbolFor) {
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().tokens[0x04] = "unrelated";
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_EQ(pieces(tokenizer,
                   "h\x04"
                   "e"),
            (Pieces{"h", "e"}));  // another word: \x04 is no letter
  EXPECT_EQ(pieces(tokenizer, "\x04"), Pieces{});
}

TEST(Tokenizer, CutsWordsAsThePreTokenizerSays) {
  EXPECT_EQ(pieces(TestVocabulary("smollm").tokenizer(), "aa12aa"), (Pieces{"aa", "1", "2", "aa"}));
  EXPECT_EQ(pieces(TestVocabulary("gpt-2").tokenizer(), "     a"), (Pieces{"    ", " ", "a"}));
  EXPECT_EQ(pieces(TestVocabulary("qwen2").tokenizer(), "a\n\nb"), (Pieces{"a", "\n\n", "b"}));
}

TEST(Tokenizer, TakesWholeWordsFirstWhereTheRuleSaysSo) {
  TestVocabulary vocabulary("llama-bpe");
  vocabulary.spec().tokens[0x04] = "xyz";  // a token that no merge makes
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "xyz xyz"), (Pieces{"xyz", " ", "x", "y", "z"}));
  vocabulary.spec().pre_tokenizer = "qwen2";
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "xyz"), (Pieces{"x", "y", "z"}));
}

TEST(Tokenizer, AddsBosAndEosToAPromptAsTheMetadataSay) {
  TestVocabulary vocabulary("gpt-2");
  EXPECT_EQ(spellings(vocabulary.tokenizer(), vocabulary.tokenizer().encode_prompt("a")), (Pieces{"a"}));
  vocabulary.spec().add_bos = true;
  vocabulary.spec().add_eos = true;
  EXPECT_EQ(spellings(vocabulary.tokenizer(), vocabulary.tokenizer().encode_prompt("a")),
            (Pieces{"<s>", "a", "<|im_end|>"}));
  const Tokenizer llama = TestVocabulary("llama-bpe").tokenizer();
  EXPECT_EQ(spellings(llama, llama.encode_prompt("a")), (Pieces{"<s>", "a"}));
}

TEST(Tokenizer, KnowsWhichTokensEndAnAnswer) {
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().end_of_turn = {7};
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_TRUE(tokenizer.is_end_of_generation(tokenizer.eos()));
  EXPECT_TRUE(tokenizer.is_end_of_generation(7));
  EXPECT_FALSE(tokenizer.is_end_of_generation(8));
  EXPECT_EQ(tokenizer.bytes_of(-1), "");
  EXPECT_EQ(tokenizer.bytes_of(100000), "");
  EXPECT_EQ(tokenizer.find("no such token"), kNoToken);
}

TEST(Tokenizer, NamesTheKnownPreTokenizersWhenOneIsUnknown) {
  TestVocabulary vocabulary("no-such");
  const Status status = Tokenizer::create(vocabulary.spec()).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("\"no-such\""));
  EXPECT_THAT(status.message(), HasSubstr("default, gpt-2, llama-bpe, qwen2, smollm"));
}

TEST(Tokenizer, RefusesMergesThatTheVocabularyCannotHold) {
  for (const std::string_view merge : {"h x", "nospace", "q h", "<s >"}) {
    TestVocabulary vocabulary("gpt-2");
    vocabulary.spec().merges.push_back(merge);
    EXPECT_EQ(Tokenizer::create(vocabulary.spec()).status().code(), ErrorCode::kCorrupt) << merge;
  }
}

TEST(Tokenizer, NeverMergesTextIntoAControlToken) {
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().types[256] = TokenType::kControl;  // "he", which the first merge makes
  EXPECT_EQ(Tokenizer::create(vocabulary.spec()).status().code(), ErrorCode::kCorrupt);
}

TEST(Tokenizer, TakesBoundedTimeForAnyText) {
  const Tokenizer tokenizer = TestVocabulary("llama-bpe").tokenizer();
  constexpr size_t kBytes = 1 << 18;
  std::string marks;
  while (marks.size() < kBytes) marks += "\u0301";
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& text : {std::string(kBytes, 'a'), std::string(kBytes, ' '), std::string(kBytes, '\n'),
                                  std::string(kBytes, '<'), std::string(kBytes, '\''), marks}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::kParse), false), text);
  }
  // Quadratic work would take minutes; this takes a fraction of a second, and under sanitizers a few.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Tokenizer, GivesManyThreadsTheSameIds) {
  const Tokenizer tokenizer = TestVocabulary("smollm").tokenizer();
  const std::string text = "hello 123 aaab é😀 <|im_end|>[TOOL]";
  const auto expected = tokenizer.encode(text, SpecialTokens::kParse);
  std::vector<std::thread> threads;
  std::vector<int> differing(4, 0);
  for (int& count : differing) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.encode(text, SpecialTokens::kParse) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differing, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace headwater::text
