// The pre-tokenisers that GGUF files name (tokenizer.ggml.pre) and what they stand for.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace headwater::text {

// GPT-2's words, which the step ByteLevel of a tokenizer.json cuts too.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct PreTokenizerRule {
  std::vector<PreTokenizerStep> steps;
  bool ignores_merges = false;
  bool adds_bos = false;     // where the metadata do not say
  bool is_composed = false;  // the model's own tokenizer composes text (NFC) first
};

// kUnsupported, listing the known names.
Result<PreTokenizerRule> pre_tokenizer_rule(std::string_view name);

// The name of the rule by which a byte-level spec cuts, composes and takes whole words; kUnsupported where none is so.
Result<std::string_view> pre_tokenizer_name(const TokenizerSpec& spec);

}  // namespace headwater::text
