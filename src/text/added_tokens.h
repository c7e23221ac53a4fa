// Tokens that are found in the text by their spelling before any word is cut: control and user-defined ones. A trie;
// at each position the longest spelling wins.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace headwater::text {

class AddedTokens {
 public:
  struct Match {
    TokenId id = kNoToken;
    size_t bytes = 0;
  };

  void add(std::string_view spelling, TokenId id, bool is_control);  // the spelling is not empty

  // The longest token at text[at...]. A control token counts only if it ends at or before control_end.
  Match longest(std::string_view text, size_t at, size_t control_end) const;
  // The first position in [at, text.size()] where a token might begin.
  size_t next_candidate(std::string_view text, size_t at) const;

 private:
  struct Node {
    char byte;
    uint32_t sibling;
    uint32_t child;
    TokenId id;
    bool is_control;
  };
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t find(uint32_t first, char byte) const;

  uint32_t root_ = kNone;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
};

}  // namespace headwater::text
