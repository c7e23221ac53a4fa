#include "text/end_tokens.h"

#include <algorithm>

namespace headwater::text {
namespace {

constexpr std::string_view kEndSpellings[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>",    "<|eom_id|>",
                                              "<|end_of_text|>", "<|end|>",       "<end_of_turn>", "<|return|>",
                                              "<turn|>",         "</s>"};

}  // namespace

std::vector<TokenId> end_tokens(const TokenizerSpec& spec) {
  std::vector<TokenId> ends = spec.end_of_turn;
  if (spec.eos != kNoToken) ends.push_back(spec.eos);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] != TokenType::kControl) continue;
    if (std::ranges::find(kEndSpellings, spec.tokens[id]) != std::end(kEndSpellings)) {
      ends.push_back(static_cast<TokenId>(id));
    }
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace headwater::text
