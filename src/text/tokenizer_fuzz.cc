// Any bytes through small vocabularies of each kind: the ids must decode to the text with its invalid bytes replaced, streamed
// or whole, no control token may come of plain text, and words must not be lost where two parts meet.
#include <cstdlib>

#include "support/streamed.h"
#include "text/test_sentencepiece.h"
#include "text/test_vocabulary.h"
#include "text/utf8.h"

using namespace headwater::text;
using headwater::TokenId;

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

// text: valid UTF-8. keeps_text: the tokenizer is lossless.
void check_tokenizer(const Tokenizer& tokenizer, std::string_view text, bool keeps_text) {
  const auto ids = tokenizer.encode(text, SpecialTokens::kParse).value();
  const auto plain = tokenizer.encode(text, SpecialTokens::kAsText).value();
  for (const TokenId id : plain) expect(!tokenizer.is_control(id));
  expect(headwater::testing::streamed(tokenizer, plain) == tokenizer.decode(plain, true));
  if (keeps_text) expect(tokenizer.decode(plain, true) == text);
  if (keeps_text && plain == ids) expect(tokenizer.decode(ids, false) == text);

  size_t middle = text.size() / 2;
  while (middle > 0 && (static_cast<uint8_t>(text[middle]) & 0xC0) == 0x80) --middle;
  const TextPart parts[] = {{text.substr(0, middle), SpecialTokens::kParse},
                            {text.substr(middle), SpecialTokens::kParse}};
  std::vector<TokenId> joined;
  expect(tokenizer.encode(parts, joined).is_ok());
  expect(joined == ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TestVocabulary bytes("llama-bpe"), steps("falcon");
  static const TestSentencePiece scores(ModelKind::kScores), unigram(ModelKind::kUnigram);
  static const Tokenizer byte_level = bytes.tokenizer(), in_steps = steps.tokenizer(), by_scores = scores.tokenizer(),
                         by_unigram = unigram.tokenizer();
  std::string text;
  append_valid_utf8({reinterpret_cast<const char*>(data), size}, text);
  expect(byte_level.encode({reinterpret_cast<const char*>(data), size}, SpecialTokens::kParse).value() ==
         byte_level.encode(text, SpecialTokens::kParse).value());
  const bool has_mark = text.find("▁") != std::string::npos;
  const bool has_tool = text.find("[TOOL]") != std::string::npos;  // text behind it gets a space in front
  check_tokenizer(byte_level, text, true);
  check_tokenizer(in_steps, text, true);
  check_tokenizer(by_scores, text, !has_mark && !has_tool);
  check_tokenizer(by_unigram, text, !has_mark && !has_tool);
  return 0;
}
