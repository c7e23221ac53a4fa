#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "text/test_sentencepiece.h"
#include "text/test_vocabulary.h"

namespace headwater::text {
namespace {

std::vector<std::string> spellings(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> bytes;
  for (const TokenId id : ids) bytes.emplace_back(tokenizer.bytes_of(id));
  return bytes;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                SpecialTokens special = SpecialTokens::kAsText) {
  return spellings(tokenizer, tokenizer.encode(text, special).value());
}

using Pieces = std::vector<std::string>;

TEST(Tokenizer, MergesByRankAndTheLeftmostOfEquals) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(pieces(tokenizer, "hello hello"), (Pieces{"hello", " hello"}));
  EXPECT_EQ(pieces(tokenizer, "aaaaa"), (Pieces{"aaaa", "a"}));
  EXPECT_EQ(pieces(tokenizer, "aaab"), (Pieces{"aa", "ab"}));
  EXPECT_EQ(pieces(tokenizer, ""), Pieces{});
}

TEST(Tokenizer, MergesFewSymbolsAsItMergesMany) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  for (size_t letters = 1; letters < 100; ++letters) {
    Pieces expected(letters / 4, "aaaa");
    if (letters % 4 >= 2) expected.emplace_back("aa");
    if (letters % 2 == 1) expected.emplace_back("a");
    EXPECT_EQ(pieces(tokenizer, std::string(letters, 'a')), expected);
  }
}

// What a long text keeps of its pieces changes nothing: each of its lines gives the ids that it gives by itself.
TEST(Tokenizer, GivesALongTextTheIdsOfItsLines) {
  Random random(1);
  for (const char* name : {"gpt-2", "llama-bpe", "deepseek-llm", "deepseek-v3", "falcon"}) {
    const Tokenizer tokenizer = TestVocabulary(name).tokenizer();
    std::string text;
    std::vector<TokenId> expected;
    for (int line = 0; line < 2000; ++line) {
      std::string letters;
      for (uint32_t i = random.between(1, 12); i > 0; --i) letters += "aabhelo   123,.$"[random.below(16)];
      letters += "x\n";
      text += letters;
      const TextPart part{letters, SpecialTokens::kAsText};
      EXPECT_TRUE(tokenizer.encode({&part, 1}, expected));
    }
    EXPECT_EQ(tokenizer.encode(text, SpecialTokens::kAsText).value(), expected) << name;
  }
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
    EXPECT_TRUE(tokenizer.encode(std::span(parts.begin(), parts.size()), ids));
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
    return tokenizer.decode(tokenizer.encode(text, SpecialTokens::kAsText).value(), true);
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

TEST(Tokenizer, TakesWholeWordsFirstWhereTheSpecSaysSo) {
  TestVocabulary vocabulary("llama-bpe");
  vocabulary.spec().tokens[0x04] = "xyz";  // a token that no merge makes
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "xyz xyz"), (Pieces{"xyz", " ", "x", "y", "z"}));
  vocabulary.spec().ignores_merges = false;
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "xyz"), (Pieces{"x", "y", "z"}));
}

TEST(Tokenizer, AddsBosAndEosToAPromptAsTheSpecSays) {
  TestVocabulary vocabulary("gpt-2");
  EXPECT_EQ(spellings(vocabulary.tokenizer(), vocabulary.tokenizer().encode_prompt("a").value()), (Pieces{"a"}));
  vocabulary.spec().prompt_prefix = {vocabulary.spec().bos};
  vocabulary.spec().prompt_suffix = {vocabulary.spec().eos};
  EXPECT_EQ(spellings(vocabulary.tokenizer(), vocabulary.tokenizer().encode_prompt("a").value()),
            (Pieces{"<s>", "a", "<|im_end|>"}));
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
  EXPECT_EQ(tokenizer.bytes_of(tokenizer.find("Ġhello")), " hello");
}

TEST(Tokenizer, RefusesMergesThatTheVocabularyCannotHold) {
  using Merge = std::pair<std::string_view, std::string_view>;
  for (const Merge& merge : {Merge{"h", "x"}, Merge{"q", "h"}, Merge{"<s", ">"}, Merge{"nospace", "h"}}) {
    TestVocabulary vocabulary("gpt-2");
    vocabulary.spec().merges.push_back(merge);
    EXPECT_EQ(Tokenizer::create(vocabulary.spec()).status().code(), ErrorCode::kCorrupt) << merge.first;
  }
}

TEST(Tokenizer, NeverMergesTextIntoAControlToken) {
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().types[256] = TokenType::kControl;  // "he", which the first merge makes
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "hello"), (Pieces{"h", "e", "ll", "o"}));
  vocabulary.spec().ignores_merges = true;
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "he"), (Pieces{"h", "e"}));
}

TEST(Tokenizer, TakesBoundedTimeForAnyText) {
  const TestVocabulary bytes("llama-bpe");
  const TestSentencePiece scores(ModelKind::kScores), unigram(ModelKind::kUnigram);
  constexpr size_t kBytes = 1 << 20;
  std::string marks;
  while (marks.size() < kBytes) marks += "\u0301\u0323";
  const auto begin = std::chrono::steady_clock::now();
  for (const Tokenizer& tokenizer : {bytes.tokenizer(), scores.tokenizer(), unigram.tokenizer()}) {
    for (const std::string& text : {std::string(kBytes, 'a'), std::string(kBytes, ' '), marks}) {
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::kParse).value(), false), text);
    }
  }
  const Tokenizer tokenizer = bytes.tokenizer();
  for (const std::string& text : {std::string(kBytes, '\n'), std::string(kBytes, '<'), std::string(kBytes, '\'')}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::kParse).value(), false), text);
  }
  // Quadratic work would take hours; this takes a few seconds, and under sanitizers some more. What each kind of text takes
  // is what bench_tokenizer measures.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(120));
}

TEST(Tokenizer, JoinsTheBestScoreFirst) {
  const Tokenizer tokenizer = TestSentencePiece(ModelKind::kScores).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "the then"), (Pieces{" the", " the", "n"}));
  EXPECT_EQ(pieces(tokenizer, "aaaaa in"), (Pieces{" a", "aaaa", " ", "in"}));
}

TEST(Tokenizer, FindsTheBestSumOfLogProbabilities) {
  const Tokenizer tokenizer = TestSentencePiece(ModelKind::kUnigram).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "the then"), (Pieces{" the", " the", "n"}));
  EXPECT_EQ(pieces(tokenizer, "aa in"), (Pieces{" a", "a", " ", "in"}));
}

TEST(Tokenizer, FallsBackToBytesForWhatHasNoToken) {
  for (const ModelKind model : {ModelKind::kScores, ModelKind::kUnigram}) {
    const Tokenizer tokenizer = TestSentencePiece(model).tokenizer();
    EXPECT_EQ(pieces(tokenizer, "éü字"), (Pieces{" ", "é", "\xC3", "\xBC", "字"}));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(" éü 字\n", SpecialTokens::kAsText).value(), true), " éü 字\n");
  }
}

TEST(Tokenizer, JoinsNeighbouringUnknownCharacters) {
  for (const ModelKind model : {ModelKind::kScores, ModelKind::kUnigram}) {
    TestSentencePiece vocabulary(model);
    vocabulary.spec().has_byte_fallback = false;
    EXPECT_EQ(pieces(vocabulary.tokenizer(), "aüöb"), (Pieces{" a", "<unk>", "b"}));
  }
}

AddedToken added(std::string_view spelling, TokenId id) {
  return {.spelling = spelling, .id = id};
}

// What the package tokenizers 0.23.3 gives: a token found in spaces that the one before it took takes its own part of them,
// what is left behind it is text, and one that strips is dropped where nothing is left for it.
TEST(Tokenizer, FindsAddedTokensInSpacesThatTheOneBeforeTook) {
  TestVocabulary vocabulary("gpt-2");
  AddedToken right = added("[R]", 'r'), both = added("\n", 'n');
  right.strips_right = both.strips_left = both.strips_right = true;
  vocabulary.spec().added = {right, both, added("  ", 's'), added(" b", 'b')};
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "[R]  a"), (Pieces{"r", "s", "a"}));
  EXPECT_EQ(pieces(tokenizer, "[R]   a"), (Pieces{"r", "s", " ", "a"}));
  EXPECT_EQ(pieces(tokenizer, "[R] ba"), (Pieces{"r", "b", "a"}));
  EXPECT_EQ(pieces(tokenizer, "[R]     b"), (Pieces{"r", "s", "s", "b"}));
  EXPECT_EQ(pieces(tokenizer, "a\n \n\nb"), (Pieces{"a", "n", "b"}));
}

TEST(Tokenizer, FindsNormalizedTokensBehindThoseThatAreNot) {
  TestVocabulary vocabulary("gpt-2");
  AddedToken normalized = added("ab", 'n');
  normalized.is_normalized = true;
  vocabulary.spec().added = {normalized, added("ba", 'p')};
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "aba"), (Pieces{"a", "p"}));
  AddedToken upper = added("AB", 'u');
  upper.is_normalized = true;
  vocabulary.spec().added = {upper, normalized};  // the same when they are normalised
  vocabulary.spec().normalizer = {{.kind = NormalizerStep::Kind::kLowercase}};
  EXPECT_EQ(vocabulary.tokenizer().encode("Ab", SpecialTokens::kAsText).value(), (std::vector<TokenId>{'u'}));
}

// Each of them looks for the end of the run.
TEST(Tokenizer, FindsStrippingTokensInALongRunOfSpacesInItsLength) {
  TestVocabulary vocabulary("gpt-2");
  AddedToken both = added("\n", 'n');
  both.strips_left = both.strips_right = true;
  vocabulary.spec().added = {both};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(pieces(vocabulary.tokenizer(), std::string(1 << 20, '\n')), (Pieces{"n"}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// A writer of GGUF names the rows of the embedding that have no token so.
TEST(Tokenizer, MakesNothingOfAnUnusedTokenNorOneOfText) {
  for (const std::string spelling : {"[PAD7]", "aaaa"}) {  // the other tokens make the second
    TestVocabulary bytes("llama-bpe");                     // takes whole words without a merge
    TestSentencePiece scores(ModelKind::kScores), unigram(ModelKind::kUnigram);
    for (TokenizerSpec* spec : {&bytes.spec(), &scores.spec(), &unigram.spec()}) {
      const auto at = static_cast<size_t>(std::ranges::find(spec->tokens, spelling) - spec->tokens.begin());
      if (at == spec->tokens.size()) spec->tokens.push_back(spelling);
      spec->types.resize(spec->tokens.size());
      spec->scores.resize(spec->tokens.size());
      spec->types[at] = TokenType::kUnused;
      const Tokenizer tokenizer = Tokenizer::create(*spec).value();
      const auto unused = static_cast<TokenId>(at);
      EXPECT_EQ(tokenizer.decode(std::vector{unused}, false), "");
      EXPECT_EQ(tokenizer.find(spelling), kNoToken);
      const std::vector<TokenId> ids = tokenizer.encode(spelling, SpecialTokens::kParse).value();
      EXPECT_EQ(std::count(ids.begin(), ids.end(), unused), 0);
      EXPECT_EQ(tokenizer.decode(ids, true), spelling);
    }
  }
}

TEST(Tokenizer, NeverMakesAControlTokenOfTextByItsModel) {
  for (const ModelKind model : {ModelKind::kScores, ModelKind::kUnigram}) {
    const Tokenizer tokenizer = TestSentencePiece(model).tokenizer();
    EXPECT_EQ(pieces(tokenizer, "</s>"), (Pieces{" ", "</", "s>"}));
  }
}

TEST(Tokenizer, PutsASpaceInFrontOfEachStretchAndTakesTheFirstOffAgain) {
  const Tokenizer tokenizer = TestSentencePiece(ModelKind::kScores).tokenizer();
  const auto ids = tokenizer.encode("the</s>the", SpecialTokens::kParse).value();
  EXPECT_EQ(spellings(tokenizer, ids), (Pieces{" the", "</s>", " the"}));
  EXPECT_EQ(tokenizer.decode(ids, false), "the</s> the");
}

TEST(Tokenizer, StripsAroundAddedTokensAndKeepsThemToWholeWordsAsTheySay) {
  TestVocabulary vocabulary("gpt-2");
  AddedToken left = added("[L]", 'l'), right = added("[R]", 'r'), word = added("ab", 'w');
  left.strips_left = true;
  right.strips_right = true;
  word.is_single_word = true;
  vocabulary.spec().added = {left, right, word};
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "x \u3000[L] x"), (Pieces{"x", "l", " ", "x"}));
  EXPECT_EQ(pieces(tokenizer, "x [R] \u3000x"), (Pieces{"x", " ", "r", "x"}));
  EXPECT_EQ(pieces(tokenizer, "[R]  [L]"), (Pieces{"r", "l"}));  // the spaces are taken once
  EXPECT_EQ(tokenizer.encode("ab cab ab_", SpecialTokens::kAsText).value()[0], 'w');
  EXPECT_EQ(pieces(tokenizer, "c-ab"), (Pieces{"c", "-", "w"}));
  EXPECT_EQ(pieces(tokenizer, "cab ab_"), (Pieces{"c", "ab", " ", "ab", "_"}));
}

TEST(Tokenizer, FindsNormalizedControlTokensOnlyInWhatTheTemplateOwns) {
  TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().normalizer = {{.kind = NormalizerStep::Kind::kLowercase}};
  for (AddedToken& token : vocabulary.spec().added) token.is_normalized = true;
  const Tokenizer tokenizer = vocabulary.tokenizer();
  const TextPart parts[] = {
      {"A<S>", SpecialTokens::kParse}, {"<S>A<s>", SpecialTokens::kAsText}, {"<S>", SpecialTokens::kParse}};
  std::vector<TokenId> ids;
  ASSERT_TRUE(tokenizer.encode(parts, ids));
  EXPECT_EQ(std::count_if(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer.is_control(id); }), 2);
  EXPECT_TRUE(tokenizer.is_control(ids[1]) && tokenizer.is_control(ids.back()));
}

TEST(Tokenizer, GivesManyThreadsTheSameIds) {
  const Tokenizer tokenizer = TestVocabulary("smollm").tokenizer();
  const std::string text = "hello 123 aaab é😀 <|im_end|>[TOOL]";
  const auto expected = tokenizer.encode(text, SpecialTokens::kParse).value();
  std::vector<std::thread> threads;
  std::vector<int> differing(4, 0);
  for (int& count : differing) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.encode(text, SpecialTokens::kParse).value() != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differing, std::vector<int>(4, 0));
}

TEST(Tokenizer, ACharacterThatIsATokenNeedsNoTokenOfItsByte) {
  TestSentencePiece vocabulary(ModelKind::kScores);
  const size_t tab = 3 + '\t';
  ASSERT_EQ(vocabulary.spec().tokens[tab], "<0x09>");
  vocabulary.spec().tokens[tab] = "\t";
  vocabulary.spec().types[tab] = TokenType::kNormal;
  const std::vector<TokenId> ids = vocabulary.tokenizer().encode("\tö", SpecialTokens::kParse).value();
  EXPECT_EQ(std::vector<TokenId>(ids.end() - 3, ids.end()), (std::vector<TokenId>{3 + '\t', 3 + 0xC3, 3 + 0xB6}));
}

TEST(Tokenizer, OfBytesHasATokenForEachByte) {
  const Tokenizer tokenizer = Tokenizer::of_bytes();
  EXPECT_EQ(tokenizer.vocabulary_size(), 256u);
  EXPECT_EQ(tokenizer.encode("aé", SpecialTokens::kParse).value(), (std::vector<TokenId>{0x61, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0x61, 0xC3, 0xA9}, false), "aé");
}

}  // namespace
}  // namespace headwater::text
