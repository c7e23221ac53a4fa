// What a GGUF file says about a model, from the JSON files of its folder.
#pragma once

#include <vector>

#include "model/gguf_header.h"
#include "model/safetensors.h"

namespace headwater::model {

// What converting the tensors needs to know.
struct FolderShape {
  std::string_view architecture;  // GGUF's
  uint64_t head_dim = 0;
  // Llama 3's scaling of RoPE, as factors that divide each pair's inverse frequency (rope_freqs.weight); else empty.
  std::vector<float> rope_factors;
};

// Writes general.* and <architecture>.* from config.json. kUnsupported: a model_type or RoPE scaling that is not written;
// kCorrupt: a number that is missing or out of range.
Result<FolderShape> write_config(const json::Value& config, std::string_view name, GgufHeader& header);

// Writes tokenizer.* for byte-level BPE from the texts of the files; the last two may be empty. vocabulary: rows of the
// embedding, which may be more than the tokens; the rest are named [PADn] and marked unused.
struct TokenizerTexts {
  std::string_view tokenizer;      // tokenizer.json
  std::string_view config;         // tokenizer_config.json
  std::string_view chat_template;  // chat_template.jinja
};
Status write_tokenizer(const TokenizerTexts& texts, uint64_t vocabulary, GgufHeader& header);

}  // namespace headwater::model
