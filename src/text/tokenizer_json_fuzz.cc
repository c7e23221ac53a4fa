// Any bytes as a tokenizer.json: it is refused, or the tokenizer that it describes encodes and decodes a few texts, and
// gives no control token for plain text.
#include <cstdlib>

#include "support/streamed.h"
#include "text/tokenizer.h"

using namespace headwater::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::create(json, "", "");
  if (!tokenizer.is_ok()) return 0;
  for (const std::string_view text : {"Hello, world! the 1234  \r\n\t", "é字😀 \u0301ﬁ▁", "<s></s> [INST] the"}) {
    const auto ids = tokenizer->encode(text, SpecialTokens::kAsText);
    for (const headwater::TokenId id : ids) {
      if (tokenizer->is_control(id) && id != tokenizer->unknown()) std::abort();
    }
    if (headwater::testing::streamed(*tokenizer, ids) != tokenizer->decode(ids, true)) std::abort();
    tokenizer->encode(text, SpecialTokens::kParse);
  }
  return 0;
}
