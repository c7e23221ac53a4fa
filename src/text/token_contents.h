// One string a token, side by side in one block.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace headwater::text {

class TokenContents {
 public:
  // What text must hold to become the token by way of the model; empty for tokens that it never becomes so.
  static TokenContents to_encode(const TokenizerSpec& spec);
  // What the token stands for in an answer. renamed: spellings that count instead of the spec's (added tokens that are found
  // in normalised text stand for what was found there).
  static TokenContents to_decode(const TokenizerSpec& spec, const std::unordered_map<TokenId, std::string>& renamed);

  std::string_view of(TokenId id) const {
    const size_t* offset = &offsets_[static_cast<size_t>(id)];
    return std::string_view(*block_).substr(offset[0], offset[1] - offset[0]);
  }
  std::vector<std::string_view> views() const;  // of all tokens; they live as long as this object or what it moved to
  size_t bytes_max() const { return bytes_max_; }  // of the longest, at least 1

 private:
  void add(std::string_view content);

  std::unique_ptr<std::string> block_ = std::make_unique<std::string>();
  std::vector<size_t> offsets_ = {0};  // one more than tokens
  size_t bytes_max_ = 1;
};

}  // namespace headwater::text
