// tokenizer.* of a GGUF file from the files of a folder.
#pragma once

#include <string_view>

#include "model/gguf_header.h"

namespace headwater::model {

struct TokenizerTexts {
  std::string_view tokenizer;      // tokenizer.json
  std::string_view config;         // tokenizer_config.json; may be empty
  std::string_view chat_template;  // chat_template.jinja; may be empty
};

// Byte-level BPE, and SentencePiece's BPE. vocabulary: rows of the embedding, which may be more than the tokens; the rest are named [PADn] and
// marked unused. kUnsupported: a tokenizer that GGUF has no name for; kCorrupt: a token beyond the embedding.
Status write_tokenizer(const TokenizerTexts& texts, uint64_t vocabulary, GgufHeader& header);

}  // namespace headwater::model
