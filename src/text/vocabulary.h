// The ordinary tokens of a vocabulary by their content: open addressing over one block of bytes, built once, then only
// read. Content is what the text must hold: raw bytes of a byte-level vocabulary, the spelling of any other.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace headwater::text {

class Vocabulary {
 public:
  // contents[id] belongs to token id and must outlive the Vocabulary; an empty one is no entry. Of equals the last counts.
  explicit Vocabulary(std::vector<std::string_view> contents);

  TokenId find(std::string_view content) const;  // kNoToken when absent
  std::string_view content(TokenId id) const { return contents_[static_cast<size_t>(id)]; }
  size_t size() const { return contents_.size(); }

 private:
  struct Slot {
    uint32_t hash = 0;
    TokenId id = kNoToken;
  };
  size_t slot_of(std::string_view content, uint64_t hash) const;

  std::vector<std::string_view> contents_;
  std::vector<Slot> slots_;  // a power of two; at most half of them are used, so a probe ends soon
};

}  // namespace headwater::text
