// Everything a step sends to the device, in one contiguous block: one upload, then views into it.
//
// The host writes through the spans of StepArrays (offsets by the step's sizes), then calls Backend::begin_step(), which
// copies the block to the device where there is one and returns DeviceBatch: the same arrays as the device sees them.
// Reference and CPU back ends read the host's block itself. Nothing here allocates after create().
#pragma once

#include <cstdint>
#include <span>

#include "attention/plan.h"
#include "core/core.h"

namespace headwater::ops {

struct StepLimits {
  uint32_t sequences_max = 0;
  uint32_t tokens_max = 0;  // query tokens of a step
  uint32_t pages_per_sequence_max = 0;
  uint32_t page_size = 32;
  uint32_t logits_max = 0;  // rows of logits a step may ask for

  attention::PlanLimits plan_limits() const { return {sequences_max, tokens_max, pages_per_sequence_max, page_size}; }
};

// The step as every operation sees it. All spans may point to device memory; sizes are host values.
struct DeviceBatch {
  uint32_t tokens = 0;                      // T; rows of the activations, grouped by sequence
  uint32_t sequences = 0;                   // R
  std::span<const TokenId> token_ids;       // [T]
  std::span<const uint32_t> positions;      // [T] absolute position of each token (RoPE, append)
  std::span<const PageId> append_pages;     // [T] page and slot that receive the token's key and value
  std::span<const uint32_t> append_slots;   // [T] in [0, page_size)
  std::span<const uint32_t> logits_tokens;  // [L] tokens whose logits are wanted, in output order
  std::span<const PageId> page_ids;         // the page table's CSR array; WorkItem::page_begin indexes it
  attention::Plan plan;                     // its spans lie in the block
};

class StepBlock {
 public:
  static Result<StepBlock> create(const StepLimits& limits);

  // Host-side writing: sized views for this step. Call layout() first with the step's sizes (within the limits).
  void layout(uint32_t sequences, uint32_t tokens, uint32_t logits, uint32_t page_ids);
  std::span<TokenId> token_ids() const { return token_ids_; }
  std::span<uint32_t> positions() const { return positions_; }
  std::span<PageId> append_pages() const { return append_pages_; }
  std::span<uint32_t> append_slots() const { return append_slots_; }
  std::span<uint32_t> logits_tokens() const { return logits_tokens_; }
  std::span<PageId> page_ids() const { return page_ids_; }
  std::span<uint32_t> page_indptr() const { return page_indptr_; }  // [R + 1]
  std::span<uint32_t> kv_len() const { return kv_len_; }            // [R]
  std::span<uint32_t> q_indptr() const { return q_indptr_; }        // [R + 1]
  std::span<uint64_t> versions() const { return versions_; }        // [R]
  attention::PageTable page_table() const;

  void set_plan(const attention::Plan& plan);  // copies the plan's arrays into the block
  DeviceBatch host_batch() const;              // views into this block
  std::span<const std::byte> bytes() const;    // the part in use: what one upload copies
  const StepLimits& limits() const { return limits_; }

 private:
  template <typename T>
  std::span<T> take(uint64_t count);  // the next aligned array of the block
  template <typename T>
  std::span<const T> take_copy(std::span<const T> from);

  StepLimits limits_;
  Buffer memory_;
  uint64_t bytes_used_ = 0;
  uint64_t bytes_inputs_ = 0;  // where the plan's arrays begin
  std::span<TokenId> token_ids_;
  std::span<uint32_t> positions_;
  std::span<PageId> append_pages_;
  std::span<uint32_t> append_slots_;
  std::span<uint32_t> logits_tokens_;
  std::span<PageId> page_ids_;
  std::span<uint32_t> page_indptr_;
  std::span<uint32_t> kv_len_;
  std::span<uint32_t> q_indptr_;
  std::span<uint64_t> versions_;
  attention::Plan plan_;
};

}  // namespace headwater::ops
