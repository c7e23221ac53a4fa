// Which tokens end an answer: EOS, what else the file names, and control tokens that do so in the chat formats of published
// models.
#pragma once

#include "text/tokenizer_spec.h"

namespace headwater::text {

std::vector<TokenId> end_tokens(const TokenizerSpec& spec);  // sorted, each once

}  // namespace headwater::text
