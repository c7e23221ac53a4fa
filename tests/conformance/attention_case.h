// One attention step as data: tables, keys and values, queries, the variant; and the rig that runs it on a back end.
//
// All slots of a small pool, written or not, are poisoned with NaN before the visible ones are filled, so that any read
// beyond kv_len shows. Values reach the pool through the Backend door alone (rope_append without rotated dimensions).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "conformance/matrices.h"
#include "conformance/targets.h"
#include "ops/ops.h"
#include "support/compare.h"
#include "support/forest.h"
#include "support/naive_attention.h"

namespace headwater::testing {

// The page tables of a step. Page ids are handed out in a scattered order.
class Sequences {
 public:
  Sequences(uint32_t page_size, uint32_t pages_max, Random& random);

  // A forest of these, under page ids of their own.
  Sequences(uint32_t page_size, const std::vector<SequencePages>& forest, Random& random);

  std::vector<PageId> new_pages(uint32_t count);
  // A sequence behind the given full pages, with pages of its own for the rest of its kv_len keys.
  void add(const std::vector<PageId>& prefix, uint32_t kv_len, uint32_t q_len = 1);
  void add_padding() { add({}, 0, 1); }

  attention::PageTable table() const { return {page_size_, page_indptr_, page_ids_, kv_len_, q_indptr_, {}}; }
  Sequences reordered(const std::vector<uint32_t>& order) const;  // or a part of them
  uint32_t page_size() const { return page_size_; }
  uint32_t pages() const { return pages_; }  // of the pool

 private:
  uint32_t page_size_;
  uint32_t pages_;
  std::vector<PageId> free_;
  std::vector<uint32_t> page_indptr_{0};
  std::vector<PageId> page_ids_;
  std::vector<uint32_t> kv_len_;
  std::vector<uint32_t> q_indptr_{0};
};

struct AttentionSetting {
  std::string name;
  uint64_t seed = 1;
  uint32_t layers = 2;  // the step runs in the last one
  uint32_t kv_heads = 1;
  uint32_t group = 1;
  uint32_t head_dim = 64;
  uint32_t v_head_dim = 0;  // 0: head_dim
  uint32_t page_size = 16;
  uint32_t pages = 64;
  uint32_t page_base = 0;  // the back end sees every page id raised by this
  DType dtype = DType::kF32;
  uint32_t window = 0;
  float softcap = 0;
  bool has_sinks = false;
  float logit_size = 1;    // standard deviation of the logits
  float logit_offset = 0;  // added to every logit of a row; but with F32 pages all logits of a row are equal then
  uint32_t q_padding = 0;  // columns between the rows of q: a slice of a fused projection

  uint32_t q_heads() const { return kv_heads * group; }
  ops::KvShape pool_shape() const {
    ops::KvShape shape = kv_shape();
    shape.pages += page_base;
    return shape;
  }
  ops::KvShape kv_shape() const {
    return {layers, kv_heads, head_dim, v_head_dim == 0 ? head_dim : v_head_dim, page_size, pages, dtype};
  }
};

struct AttentionResult {
  std::vector<float> out;   // [T, q_heads, v_head_dim]
  std::vector<float> lse2;  // [T, q_heads]
};

// Keys, values, queries and sinks of a setting, the same for every back end.
class AttentionCase {
 public:
  AttentionCase(const AttentionSetting& setting, const Sequences& sequences);

  // q row of a token: a function of the setting's seed, its sequence's last page and its index in the sequence, so that
  // a sequence asks the same in every batch. [q_heads * head_dim]
  std::vector<float> query(const attention::PageTable& table, uint32_t sequence, uint32_t index) const;
  NaiveAttention::Output expected(const Sequences& sequences) const;
  ::testing::AssertionResult matches(const AttentionResult& result, const NaiveAttention::Output& expected) const;

  const AttentionSetting& setting() const { return setting_; }
  const std::vector<float>& sinks() const { return sinks_; }
  ops::AttentionVariant variant() const;
  const float* key(PageId page, uint32_t slot, uint32_t kv_head) const;
  const float* value(PageId page, uint32_t slot, uint32_t kv_head) const;
  const std::vector<std::pair<PageId, uint32_t>>& visible_slots() const { return visible_; }

 private:
  void fill_slot(PageId page, uint32_t slot, Random& random);
  uint64_t row_of(PageId page, uint32_t slot, uint32_t kv_head) const {
    return (uint64_t{page} * setting_.page_size + slot) * setting_.kv_heads + kv_head;
  }

  AttentionSetting setting_;
  std::vector<float> offset_direction_;  // [head_dim], the unit vector that carries logit_offset
  std::vector<float> sinks_;
  std::vector<float> keys_, values_;  // [page][slot][kv_head][width], rounded to the dtype
  std::vector<std::pair<PageId, uint32_t>> visible_;
};

// A back end with the pool of one case.
class AttentionRig {
 public:
  AttentionRig(ops::Backend& backend, const AttentionCase& data);
  // plan_index: where in the step block the plan lies; those before it are empty.
  AttentionResult run(const Sequences& sequences, const attention::Plan& plan, bool wants_lse2 = true,
                      uint32_t plan_index = 0);
  ops::KvPool& pool() { return *pool_; }

 private:
  void append(const std::vector<std::pair<PageId, uint32_t>>& slots, bool is_poison);
  ops::StepLimits limits_for(const attention::PageTable& table, const attention::Plan* plan) const;

  ops::Backend& backend_;
  const AttentionCase& data_;
  BackendMemory memory_;
  std::unique_ptr<ops::KvPool> pool_;
};

// A planner as the engine would make it for this back end and setting.
attention::Planner make_planner(const ops::Backend& backend, const AttentionSetting& setting,
                                const Sequences& sequences, attention::Sharing sharing, uint32_t cut, bool invariant);

}  // namespace headwater::testing
