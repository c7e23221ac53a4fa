#include <gtest/gtest.h>

#include "text/test_vocabulary.h"
#include "text/tokenizer.h"

namespace headwater::text {
namespace {

// In the test vocabulary token b is byte b, so a string is a stream of one-byte tokens.
std::string stream(const Tokenizer& tokenizer, std::string_view bytes, bool finish = true) {
  Detokenizer detokenizer(tokenizer);
  std::string out;
  for (const char byte : bytes) detokenizer.append(static_cast<uint8_t>(byte), out);
  if (finish) detokenizer.finish(out);
  return out;
}

TEST(Detokenizer, GivesTheSameTextHoweverTheBytesAreSplit) {
  const std::string text = "aé字😀\u0301z";
  // Every way to cut the text in three tokens.
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      TokenizerSpec spec;
      spec.is_byte_level = true;
      std::vector<std::string> spelled;
      for (const std::string& part : {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        spelled.emplace_back();
        for (const char byte : part) append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), spelled.back());
      }
      spec.tokens.assign(spelled.begin(), spelled.end());
      spec.types.assign(3, TokenType::kNormal);
      const Tokenizer tokenizer = Tokenizer::create(spec).value();
      Detokenizer detokenizer(tokenizer);
      std::string out;
      for (TokenId id = 0; id < 3; ++id) {
        detokenizer.append(id, out);
        EXPECT_TRUE(is_valid_utf8(out));
        EXPECT_EQ(text.substr(0, out.size()), out);
      }
      EXPECT_EQ(out, text);  // nothing is held back once the text is whole
    }
  }
}

TEST(Detokenizer, HoldsBackOnlyAnIncompleteCharacter) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(stream(tokenizer, "a\xF0\x9F\x98", false), "a");
  EXPECT_EQ(stream(tokenizer, "a\xF0\x9F\x98", true), "a\uFFFD");
  EXPECT_EQ(stream(tokenizer, "a\xF0\x9F\x98\x80", false), "a😀");
}

TEST(Detokenizer, ReplacesWhatCanNeverBecomeValid) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  EXPECT_EQ(stream(tokenizer, "\xFF", false), "\uFFFD");
  EXPECT_EQ(stream(tokenizer,
                   "\xE2\x82"
                   "b",
                   false),
            "\uFFFDb");
  EXPECT_EQ(stream(tokenizer, "\xE2\x82\xE2\x82\xAC", false), "\uFFFD€");
  EXPECT_EQ(stream(tokenizer, "\xED\xA0\x80", false), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(stream(tokenizer, "\xC3\xFF", false), "\uFFFD\uFFFD");
}

TEST(Detokenizer, AgreesWithDecodeOnEveryPairOfBytes) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  for (TokenId first = 0x70; first < 256; ++first) {
    for (TokenId second = 0x70; second < 256; ++second) {
      const std::vector<TokenId> ids = {first, second, 'x'};
      const std::string bytes = {static_cast<char>(first), static_cast<char>(second), 'x'};
      EXPECT_EQ(stream(tokenizer, bytes), tokenizer.decode(ids, true)) << first << " " << second;
    }
  }
}

TEST(Detokenizer, GivesNothingForControlTokens) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  Detokenizer detokenizer(tokenizer);
  std::string out;
  detokenizer.append('a', out);
  detokenizer.append(tokenizer.eos(), out);
  detokenizer.append(-5, out);
  detokenizer.finish(out);
  EXPECT_EQ(out, "a");
}

}  // namespace
}  // namespace headwater::text
