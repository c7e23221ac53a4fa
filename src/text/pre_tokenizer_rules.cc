#include <fmt/ranges.h>

#include "text/pre_tokenizer.h"

namespace headwater::text {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kEachDigit = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

const std::vector<PreTokenizerRule>& rules() {
  static const std::vector<PreTokenizerRule> kRules = {
      {"default", {kGpt2}, false, false},
      {"gpt-2", {kGpt2}, false, false},
      {"llama-bpe", {kLlama3}, true, true},
      {"qwen2", {kQwen2}, false, false},
      {"smollm", {kEachDigit, kGpt2}, false, false},
  };
  return kRules;
}

}  // namespace

Result<PreTokenizerRule> pre_tokenizer_rule(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PreTokenizerRule& rule : rules()) {
    if (rule.name == name) return rule;
    names.push_back(rule.name);
  }
  return error(ErrorCode::kUnsupported, "the pre-tokeniser \"{}\" (tokenizer.ggml.pre) is not known; known are {}",
               name, fmt::join(names, ", "));
}

}  // namespace headwater::text
