// Any bytes through a small vocabulary: the ids must decode to the text with its invalid bytes replaced, streamed or
// whole, and words must not be lost where two parts meet.
#include <cstdlib>

#include "text/test_vocabulary.h"
#include "text/utf8.h"

using namespace headwater::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TestVocabulary vocabulary("llama-bpe");
  static const Tokenizer tokenizer = vocabulary.tokenizer();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string valid;
  append_valid_utf8(input, valid);

  const auto ids = tokenizer.encode(input, SpecialTokens::kParse);
  if (tokenizer.decode(ids, false) != valid) std::abort();
  Detokenizer detokenizer(tokenizer);
  std::string streamed;
  const auto plain = tokenizer.encode(input, SpecialTokens::kAsText);
  for (const headwater::TokenId id : plain) {
    if (tokenizer.is_control(id)) std::abort();
    detokenizer.append(id, streamed);
  }
  detokenizer.finish(streamed);
  if (streamed != valid) std::abort();

  const std::string_view text = valid;
  size_t middle = text.size() / 2;
  while (middle > 0 && (static_cast<uint8_t>(text[middle]) & 0xC0) == 0x80) --middle;
  const TextPart parts[] = {{text.substr(0, middle), SpecialTokens::kParse},
                            {text.substr(middle), SpecialTokens::kParse}};
  std::vector<headwater::TokenId> joined;
  tokenizer.encode(parts, joined);
  if (middle < text.size() && joined != ids) std::abort();
  return 0;
}
