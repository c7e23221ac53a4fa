// What stands beside a tokenizer.json in a folder: tokenizer_config.json names BOS, EOS and padding, and whether the first two
// are put around a plain prompt; generation_config.json, and config.json where that says nothing, which tokens end an answer.
#pragma once

#include <optional>

#include "text/tokenizer_spec.h"

namespace headwater::text {

// An empty file says nothing. kCorrupt: BOS or EOS that the vocabulary has not, and ids that are no numbers.
Status read_tokenizer_config(const model::TokenizerTexts& texts, TokenizerSpec& spec);

// Whether a plain prompt begins with BOS and ends with EOS, said beside its post-processor: true puts the token there unless
// it is there, false takes it away, none leaves what the post-processor says.
void decide_ends(std::optional<bool> adds_bos, std::optional<bool> adds_eos, TokenizerSpec& spec);

}  // namespace headwater::text
