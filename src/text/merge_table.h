// The merges of a BPE vocabulary: pair of token ids -> rank and joined token. Open addressing, built once, then only
// read.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/core.h"

namespace headwater::text {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = 0xffffffffu;
  struct Merge {
    uint32_t rank = kNoRank;
    TokenId joined = -1;
  };

  // At most half of the slots are used, so a probe ends soon.
  explicit MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 2)) {}

  // A pair that is already there takes the new rank.
  void insert(TokenId left, TokenId right, Merge merge) {
    Slot& slot = slots_[slot_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }

  Merge find(TokenId left, TokenId right) const {  // rank kNoRank: the pair does not merge
    return slots_[slot_of(key_of(left, right))].merge;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;
  };

  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  size_t slot_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = (key * 0x9E3779B97F4A7C15u ^ key >> 29) * 0xBF58476D1CE4E5B9u >> 32 & mask;
    while (slots_[slot].merge.rank != kNoRank && slots_[slot].key != key) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<Slot> slots_;
};

}  // namespace headwater::text
