// Tokens that are found in the text by their spelling before any word is cut: control and user-defined ones. At each
// position the longest spelling wins.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"
#include "text/trie.h"

namespace headwater::text {

// A stretch of a text, from where the one before ends, and whether control tokens may be spelled in it.
struct Run {
  size_t end;
  SpecialTokens special;
};

class AddedTokens {
 public:
  static constexpr size_t kBytesMax = 1024;  // of a spelling

  struct Match {
    // Of what the token takes, spaces at its sides included where it strips them; not empty. A token that was found in
    // spaces which the one before it took begins before that one's end, and what is left of them behind it is text again.
    size_t begin;
    size_t end;
    TokenId id;
  };

  // tokens[i] is looked for as spellings[i] (the same, or normalised).
  AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> spellings);

  // All tokens of text in order. A control token counts only where its whole spelling lies in one run of kParse; runs
  // cover the text, neighbours differ.
  void find(std::string_view text, std::span<const Run> runs, std::vector<Match>& matches) const;
  bool is_empty() const { return tokens_.empty(); }

 private:
  const AddedToken* longest(std::string_view text, size_t at, size_t control_end, size_t& bytes) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> spellings_;
  Trie trie_;
};

}  // namespace headwater::text
