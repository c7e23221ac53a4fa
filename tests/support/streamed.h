// What a client sees of a sequence of tokens, one after the other.
#pragma once

#include <string>
#include <vector>

#include "text/text.h"

namespace headwater::testing {

inline std::string streamed(const text::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  text::Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId id : ids) detokenizer.append(id, text);
  detokenizer.finish(text);
  return text;
}

}  // namespace headwater::testing
