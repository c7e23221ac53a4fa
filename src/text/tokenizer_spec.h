// A vocabulary as plain data, whichever file it came from.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/core.h"
#include "model/gguf.h"
#include "text/tokenizer.h"

namespace headwater::text {

enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The views point into the file (or the test's literals) and are needed only while a Tokenizer is made.
struct TokenizerSpec {
  std::vector<std::string_view> tokens;  // spellings; a token's index is its id
  std::vector<TokenType> types;          // one a token
  std::vector<std::string_view> merges;  // "left right", the strongest first
  std::string_view pre_tokenizer = "default";
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  std::vector<TokenId> end_of_turn;  // further tokens that the file names as ends of an answer
  std::optional<bool> add_bos;       // unset: as the pre-tokeniser's rule says
  bool add_eos = false;
};

// Reads tokenizer.ggml.*. kUnsupported for a model other than "gpt2"; kCorrupt for ids outside the vocabulary.
Result<TokenizerSpec> read_tokenizer_spec(const model::GgufFile& file);

}  // namespace headwater::text
