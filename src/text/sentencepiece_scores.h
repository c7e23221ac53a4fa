// What GGUF keeps of SentencePiece's BPE, from a tokenizer.json that has merges in its place.
//
// GGUF has no merges but a score of each token: any two neighbours that make a token are joined, the best score first.
// Converters make merges of scores: all that give a token, by falling score, then by falling lengths of both halves. This
// goes back, and refuses merges that were made otherwise.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "text/tokenizer_spec.h"

namespace headwater::text {

// Whether a mark is put in front of a text as one is for every space; none: text is changed or cut in another way, or whole
// words are taken first, which SentencePiece does not.
std::optional<bool> puts_mark_in_front(const TokenizerSpec& spec);

// types: of the tokens as they are written, at least one a token of the spec. One score for each of them. kUnsupported:
// merges that no scores give.
Result<std::vector<float>> scores_of_merges(const TokenizerSpec& spec, std::span<const TokenType> types);

}  // namespace headwater::text
