#include "ops/step_block.h"

#include <algorithm>

namespace headwater::ops {
namespace {

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

}  // namespace

Result<StepBlock> StepBlock::create(const StepLimits& limits) {
  const attention::PlanLimits plan = limits.plan_limits();
  const uint64_t sequences = limits.sequences_max, tokens = limits.tokens_max;
  uint64_t bytes = 4 * aligned(tokens * sizeof(uint32_t)) + aligned(limits.logits_max * sizeof(uint32_t)) +
                   aligned(sequences * limits.pages_per_sequence_max * sizeof(PageId)) +
                   3 * aligned((sequences + 1) * sizeof(uint32_t)) + aligned(sequences * sizeof(uint64_t));
  bytes += aligned(uint64_t{plan.items_max()} * sizeof(attention::WorkItem)) + 2 * aligned(tokens * sizeof(uint32_t)) +
           aligned((tokens + 1) * sizeof(uint32_t)) + aligned(uint64_t{plan.partials_max()} * sizeof(uint32_t)) +
           aligned(tokens);
  StepBlock block;
  block.limits_ = limits;
  HEADWATER_ASSIGN_OR_RETURN(block.memory_, Buffer::create(bytes));
  return block;
}

template <typename T>
std::span<T> StepBlock::take(uint64_t count) {
  check(bytes_used_ + aligned(count * sizeof(T)) <= memory_.size(), "the step block is larger than its limits");
  auto* begin = reinterpret_cast<T*>(memory_.data() + bytes_used_);
  bytes_used_ += aligned(count * sizeof(T));
  return {begin, count};
}

template <typename T>
std::span<const T> StepBlock::take_copy(std::span<const T> from) {
  const std::span<T> to = take<T>(from.size());
  std::copy(from.begin(), from.end(), to.begin());
  return to;
}

void StepBlock::layout(uint32_t sequences, uint32_t tokens, uint32_t logits, uint32_t page_ids) {
  check(sequences <= limits_.sequences_max && tokens <= limits_.tokens_max && logits <= limits_.logits_max,
        "the step is larger than its limits");
  bytes_used_ = 0;
  token_ids_ = take<TokenId>(tokens);
  positions_ = take<uint32_t>(tokens);
  append_pages_ = take<PageId>(tokens);
  append_slots_ = take<uint32_t>(tokens);
  logits_tokens_ = take<uint32_t>(logits);
  page_ids_ = take<PageId>(page_ids);
  page_indptr_ = take<uint32_t>(sequences + 1);
  kv_len_ = take<uint32_t>(sequences);
  q_indptr_ = take<uint32_t>(sequences + 1);
  versions_ = take<uint64_t>(sequences);
  bytes_inputs_ = bytes_used_;
  plan_ = {};
}

attention::PageTable StepBlock::page_table() const {
  return {limits_.page_size, page_indptr_, page_ids_, kv_len_, q_indptr_, versions_};
}

void StepBlock::set_plan(const attention::Plan& plan) {
  bytes_used_ = bytes_inputs_;
  plan_ = plan;
  plan_.items = take_copy(plan.items);
  plan_.token_order = take_copy(plan.token_order);
  plan_.token_position = take_copy(plan.token_position);
  plan_.merge_indptr = take_copy(plan.merge_indptr);
  plan_.merge_slots = take_copy(plan.merge_slots);
  plan_.token_empty = take_copy(plan.token_empty);
}

DeviceBatch StepBlock::host_batch() const {
  return {static_cast<uint32_t>(token_ids_.size()),
          static_cast<uint32_t>(kv_len_.size()),
          token_ids_,
          positions_,
          append_pages_,
          append_slots_,
          logits_tokens_,
          page_ids_,
          plan_};
}

std::span<const std::byte> StepBlock::bytes() const {
  return {memory_.data(), bytes_used_};
}

}  // namespace headwater::ops
