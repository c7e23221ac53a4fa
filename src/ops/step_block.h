// Everything a step sends to the device, in one contiguous block: one upload, then views into it.
//
//   offset 0                                                                      bytes().size()
//   | StepHeader | inputs, each with room for its limit | plan, likewise | page ids in use |
//
// The host writes through the spans, then calls Backend::begin_step(), which copies the block to the device where
// there is one and returns DeviceBatch: the same arrays as the device sees them. Reference and CPU back ends read the
// host's block itself. While a device computes one step, the host may write the next into a twin of its block; both
// are uploaded to one copy (Backend::create_twin). Every array keeps its place whatever the step's sizes, so that
// work recorded once for a device (a graph) reads each later step; how much of an array counts stands in the header.
// Page ids come last: of them only those in use are uploaded. Nothing here allocates after create().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "attention/plan.h"
#include "core/core.h"
#include "ops/pending_token.h"
#include "ops/step_header.h"

namespace headwater::ops {

inline constexpr uint32_t kPlansMax = 2;  // attention plans of a step: one for each window of the model

struct StepLimits {
  uint32_t sequences_max = 0;
  uint32_t tokens_max = 0;  // query tokens of a step
  uint32_t pages_per_sequence_max = 0;
  uint32_t page_size = 32;
  uint32_t logits_max = 0;  // rows of logits a step may ask for
  uint32_t workers = 1;     // BackendInfo::workers
  uint32_t plans = 1;       // attention plans of a step, at most kPlansMax

  attention::PlanLimits plan_limits() const {
    return {sequences_max, tokens_max, pages_per_sequence_max, page_size, workers};
  }
};

// An attention plan as the device sees it: its spans lie in the block.
struct DevicePlan : attention::Plan {
  const StepHeader* header = nullptr;
  uint32_t items_max = 0;  // room of items: what a later step may hold there
  // [items][kFirstPages]: of each item's first pages the ids, the last again where it has fewer. On devices only, where one
  // load less in a row counts.
  std::span<const PageId> first_pages;
};

// The step as every operation sees it. All spans may point to device memory; sizes are host values.
struct DeviceBatch {
  uint32_t tokens = 0;                      // T; rows of the activations, grouped by sequence
  uint32_t sequences = 0;                   // R
  std::span<const TokenId> token_ids;       // [T]; some may be pending_token()s where BackendInfo::runs_ahead
  std::span<const uint32_t> positions;      // [T] absolute position of each token (RoPE, append)
  std::span<const PageId> append_pages;     // [T] page and slot that receive the token's key and value
  std::span<const uint32_t> append_slots;   // [T] in [0, page_size)
  std::span<const uint32_t> logits_tokens;  // [L] tokens whose logits are wanted, in output order
  std::span<const PageId> page_ids;         // the page table's CSR array; WorkItem::page_begin indexes it
  std::array<DevicePlan, kPlansMax> plans;  // the first StepLimits::plans of them

  // A step of decoding as one of `rows` tokens, each with logits: within the step block's limits, at least as many as there are.
  // What the rows beyond hold is left over from other steps; a device's operations bear that, and write none of their keys.
  DeviceBatch padded(uint32_t rows) const;
};

// Rows that a step of decoding of so many is recorded with: few sizes, and not many rows too many.
uint32_t recorded_rows(uint32_t rows);

// The device's copy of a step block and its twins, freed with the last of them.
class DeviceCopy {
 public:
  virtual ~DeviceCopy() = default;
  virtual std::byte* data() const = 0;  // device memory of StepBlock::bytes_max()
};

class StepBlock {
 public:
  static Result<StepBlock> create(const StepLimits& limits);
  // For a device: in memory of its kind (pinned), of bytes_max(limits) or more, and with room for its copy.
  static StepBlock create(const StepLimits& limits, Buffer memory, std::shared_ptr<DeviceCopy> device_copy);
  static uint64_t bytes_max(const StepLimits& limits);

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

  void set_plan(const attention::Plan& plan, uint32_t index = 0);  // copies the plan's arrays into the block
  DeviceBatch host_batch() const;                                  // views into this block
  DeviceBatch batch_at(const std::byte* base) const;  // the same views into a copy of bytes() that lies at `base`
  std::span<const std::byte> bytes() const;           // the part in use: what one upload copies
  const StepLimits& limits() const { return limits_; }
  const std::shared_ptr<DeviceCopy>& device_copy() const {
    return device_copy_;
  }  // null: the host's block is read itself

 private:
  struct PlanOffsets {
    uint64_t header, items, first_pages, token_order, token_position, merge_indptr, merge_slots, token_empty;
  };
  struct Offsets {  // in bytes, fixed by the limits
    uint64_t token_ids, positions, append_pages, append_slots, logits_tokens, page_indptr, kv_len, q_indptr, versions;
    std::array<PlanOffsets, kPlansMax> plans;
    uint64_t page_ids, end;
  };
  static Offsets offsets_of(const StepLimits& limits);
  template <typename T>
  std::span<T> at(uint64_t offset, uint64_t count) const {
    return {reinterpret_cast<T*>(memory_.data() + offset), count};
  }
  template <typename T>
  std::span<const T> copy(std::span<const T> from, uint64_t offset, uint64_t count_max) const;
  void set_first_pages(std::span<const attention::WorkItem> items, uint64_t offset) const;
  StepHeader& header(uint32_t plan) const {
    return *reinterpret_cast<StepHeader*>(memory_.data() + offsets_.plans[plan].header);
  }

  StepLimits limits_;
  Offsets offsets_{};
  Buffer memory_;
  std::shared_ptr<DeviceCopy> device_copy_;
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
  std::array<attention::Plan, kPlansMax> plans_;
};

}  // namespace headwater::ops
