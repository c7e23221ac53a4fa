// What the pre-tokenisers stand for that GGUF files name (tokenizer.ggml.pre).
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace headwater::text {

struct PreTokenizerRule {
  std::vector<PreTokenizerStep> steps;
  bool ignores_merges = false;
  bool adds_bos = false;     // where the metadata do not say
  bool is_composed = false;  // the model's own tokenizer composes text (NFC) first
};

// kUnsupported, listing the known names.
Result<PreTokenizerRule> pre_tokenizer_rule(std::string_view name);

}  // namespace headwater::text
