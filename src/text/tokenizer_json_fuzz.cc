// Any bytes as a tokenizer.json: it is refused, or the tokenizer that it describes encodes and decodes a few texts, and
// gives no control token for plain text. As that, or beside one as tokenizer_config.json and chat_template.jinja, it is
// refused or written as GGUF metadata that are read back.
#include <cstdlib>

#include "support/streamed.h"
#include "text/tokenizer.h"
#include "text/write_tokenizer.h"

using namespace headwater::text;

namespace {

constexpr std::string_view kByteLevel = R"({"model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1}, "merges": []},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})";

void expect_read_back(const headwater::model::TokenizerTexts& texts) {
  headwater::model::GgufHeader header;
  if (!write_tokenizer(texts, 4096, header)) return;
  if (!headwater::model::GgufFile::parse(header.bytes()).is_ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  expect_read_back({json});
  expect_read_back({kByteLevel, json, "", json});
  expect_read_back({kByteLevel, json, json, "", json});
  const auto tokenizer = Tokenizer::create(headwater::model::TokenizerTexts{json});
  if (!tokenizer.is_ok()) return 0;
  for (const std::string_view text : {"Hello, world! the 1234  \r\n\t", "é字😀 \u0301ﬁ▁", "<s></s> [INST] the"}) {
    const auto ids = tokenizer->encode(text, SpecialTokens::kAsText);
    if (const auto parsed = tokenizer->encode(text, SpecialTokens::kParse)) tokenizer->decode(*parsed, false);
    if (!ids) continue;  // the file makes too much of the text
    for (const headwater::TokenId id : *ids) {
      if (tokenizer->is_control(id) && id != tokenizer->unknown()) std::abort();
    }
    if (headwater::testing::streamed(*tokenizer, *ids) != tokenizer->decode(*ids, true)) std::abort();
  }
  return 0;
}
