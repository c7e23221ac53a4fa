// The plan's arrays: sized once, written by emit(), patched by grow(). Internal to the room.
#pragma once

#include <span>
#include <vector>

#include "attention/cut.h"
#include "attention/forest.h"
#include "attention/rules.h"

namespace headwater::attention {

class Emitter {
 public:
  explicit Emitter(const Rules& rules);

  // Writes the whole plan but its outcome. The drafts are depth first; the balance fits.
  void emit(const PageTable& table, const PrefixForest& forest, std::span<const Draft> drafts, const Balance& balance,
            Plan& plan);
  // The plan for the same sequences after each grew by growth[r] tokens without leaving its last quantum: positions,
  // key counts and page offsets change, nothing else. Returns the keys that the items read more than before.
  uint64_t grow(const PageTable& table, const PrefixForest& forest, std::span<const uint32_t> growth);

 private:
  struct Origin {  // of an item
    uint32_t sequence;
    uint32_t page;    // index in the sequence's list
    uint32_t states;  // partials a token
    bool grows;       // ends at the last token
  };
  void lay_out_tokens(const PageTable& table, const PrefixForest& forest);
  void lay_out_items(const PageTable& table, std::span<const Draft> drafts, double piece_ns);
  void lay_out_merge();
  void sort_items();

  const Rules& rules_;
  uint32_t items_ = 0;
  uint32_t tokens_ = 0;
  uint32_t partials_ = 0;
  uint32_t items_large_ = 0;
  std::vector<WorkItem> depth_first_, longest_first_;
  std::vector<Origin> depth_first_origin_, origin_;
  std::vector<uint64_t> sorted_;
  std::vector<uint32_t> token_order_, token_position_, merge_indptr_, merge_slots_, merge_end_;
  std::vector<uint8_t> token_empty_;
};

}  // namespace headwater::attention
