// attend and merge as attention/plan.h defines them, in double from the first product to the last merge.
//
// A block is the keys of an item that lie in one page and one cut. Its state is computed with the block's own maximum;
// a cut's state is the left fold of its blocks; a folding item folds its cuts, its sink first; merge folds what is
// left. Every fold is merge_state(), so the bits of an output depend only on where pages and cuts lie, never on the
// items.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/reference/pool.h"
#include "backend/reference/state.h"
#include "ops/backend.h"

namespace headwater::backend::reference {

class Attention {
 public:
  void attend(const ops::AttentionParams& params);
  void merge(const ops::AttentionParams& params);
  uint64_t take_kv_bytes_read() { return std::exchange(kv_bytes_read_, 0); }

 private:
  struct Block {
    uint32_t begin;  // absolute key positions [begin, end), inside one page and one cut
    uint32_t end;
  };
  void attend_item(const ops::AttentionParams& params, const attention::WorkItem& item, uint32_t kv_head);
  void load_queries(const ops::AttentionParams& params, const attention::WorkItem& item, uint32_t kv_head);
  void load_block(const ops::AttentionParams& params, const attention::WorkItem& item, uint32_t kv_head, Block block);
  void attend_block(const ops::AttentionParams& params, const attention::WorkItem& item, Block block);
  void attend_row(const ops::AttentionVariant& variant, const double* query, Block loaded, Block visible);
  void emit(const ops::AttentionParams& params, const attention::WorkItem& item, uint32_t kv_head, uint32_t slot,
            const States& states);
  static void write(const ops::AttentionParams& params, uint32_t token, uint32_t q_head, const States& states,
                    size_t index);

  States partials_;  // [slot][q_head]
  States folded_;    // [token of the item][query head of the group]
  States cut_;       // same
  States block_;     // one
  States row_;       // one
  std::vector<double> queries_, keys_, values_, scores_;
  std::vector<float> loaded_;
  uint64_t kv_bytes_read_ = 0;
};

}  // namespace headwater::backend::reference
