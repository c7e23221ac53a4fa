#include <algorithm>

#include "text/pre_tokenizer_rules.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {
namespace {

std::string_view kind_of(const TokenizerSpec& spec) {
  switch (spec.model) {
    case ModelKind::kBpe:
      return spec.is_byte_level ? "byte-level BPE" : "BPE";
    case ModelKind::kScores:
      return "SentencePiece's BPE";
    case ModelKind::kUnigram:
      break;
  }
  return "unigram";
}

std::string pre_tokenizer_of(const TokenizerSpec& spec) {
  const auto known = spec.is_byte_level ? pre_tokenizer_name(spec) : Result<std::string_view>(std::string_view());
  if (known && !known->empty()) return fmt::format("pre-tokeniser {}", *known);
  if (spec.pre_tokenizer.empty()) return "no pre-tokeniser";
  return fmt::format("a pre-tokeniser of {} steps", spec.pre_tokenizer.size());
}

}  // namespace

std::string describe(const TokenizerSpec& spec) {
  const auto control = std::ranges::count(spec.added, true, &AddedToken::is_control);
  const std::string merges = spec.merges.empty() ? "" : fmt::format("{} merges, ", spec.merges.size());
  return fmt::format("{}, {} tokens, {}{}, {} added tokens ({} control)", kind_of(spec), spec.tokens.size(), merges,
                     pre_tokenizer_of(spec), spec.added.size(), control);
}

}  // namespace headwater::text
