// Plans that no planner made: hand-written ones for the controls, and random ones that cut tokens and keys in any way
// that attention/plan.h allows, so that back ends are tested beyond what the planner emits.
#pragma once

#include <vector>

#include "attention/plan.h"

namespace headwater::testing {

// A plan under construction. Owns its arrays; plan() views them.
class PlanBuilder {
 public:
  // Tokens in plan order; positions and emptiness come from the table.
  PlanBuilder(const attention::PageTable& table, std::vector<uint32_t> token_order, uint32_t cut, uint32_t window);

  // Items of one token are added in key order. page_begin is counted inside the sequence of the first token.
  void add_item(uint32_t token_begin, uint32_t token_count, uint32_t first_page, uint32_t key_count, uint32_t flags);
  void shuffle_items(Random& random);
  attention::Plan plan();

  uint32_t sequence_of(uint32_t at) const { return sequences_[at]; }  // of a plan position
  uint32_t position_of(uint32_t at) const { return positions_[at]; }
  bool is_empty(uint32_t at) const { return empty_[at] != 0; }
  uint32_t tokens() const { return static_cast<uint32_t>(order_.size()); }

 private:
  const attention::PageTable table_;
  uint32_t cut_;
  uint32_t window_;
  std::vector<uint32_t> order_, positions_, sequences_;  // by plan position
  std::vector<uint8_t> empty_;
  std::vector<attention::WorkItem> items_;
  std::vector<std::vector<uint32_t>> slots_;  // partial slots of a token in key order
  std::vector<uint32_t> merge_indptr_, merge_slots_;
  uint32_t partials_ = 0;
};

struct RandomPlanOptions {
  uint32_t cut = 64;  // keys; a multiple of the page size, or anything on the reference
  uint32_t window = 0;
  bool whole_cuts = false;  // pieces end at multiples of the cut: what the invariant mode of the planner promises
  uint32_t tokens_item_max = 64;
};

// Sequences in an order that keeps equal prefixes together, tokens of a sequence in order; then every range of tokens
// is split, or attends part of the pages all of it has in common, at random, until each token has seen all its keys
// once.
PlanBuilder random_plan(const attention::PageTable& table, const RandomPlanOptions& options, Random& random);

}  // namespace headwater::testing
