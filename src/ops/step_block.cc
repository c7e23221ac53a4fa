#include "ops/step_block.h"

#include <bit>

#include <algorithm>
#include <utility>

namespace headwater::ops {
namespace {

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

}  // namespace

StepBlock::Offsets StepBlock::offsets_of(const StepLimits& limits) {
  const attention::PlanLimits plan = limits.plan_limits();
  const uint64_t sequences = limits.sequences_max, tokens = limits.tokens_max;
  uint64_t end = 0;
  const auto take = [&](uint64_t count, uint64_t size) { return std::exchange(end, end + aligned(count * size)); };
  const auto take_plan = [&] {
    return PlanOffsets{.header = take(1, sizeof(StepHeader)),
                       .items = take(plan.items_max(), sizeof(attention::WorkItem)),
                       .first_pages = take(uint64_t{plan.items_max()} * kFirstPages, sizeof(PageId)),
                       .token_order = take(tokens, sizeof(uint32_t)),
                       .token_position = take(tokens, sizeof(uint32_t)),
                       .merge_indptr = take(tokens + 1, sizeof(uint32_t)),
                       .merge_slots = take(plan.partials_max(), sizeof(uint32_t)),
                       .token_empty = take(tokens, sizeof(uint8_t))};
  };
  check(limits.plans >= 1 && limits.plans <= kPlansMax, "a step block of no plan, or of more than kPlansMax");
  Offsets o{};
  o.plans[0] = take_plan();
  o.token_ids = take(tokens, sizeof(TokenId));
  o.positions = take(tokens, sizeof(uint32_t));
  o.append_pages = take(tokens, sizeof(PageId));
  o.append_slots = take(tokens, sizeof(uint32_t));
  o.logits_tokens = take(limits.logits_max, sizeof(uint32_t));
  o.page_indptr = take(sequences + 1, sizeof(uint32_t));
  o.kv_len = take(sequences, sizeof(uint32_t));
  o.q_indptr = take(sequences + 1, sizeof(uint32_t));
  o.versions = take(sequences, sizeof(uint64_t));
  for (uint32_t i = 1; i < limits.plans; ++i) o.plans[i] = take_plan();
  o.page_ids = take(sequences * limits.pages_per_sequence_max, sizeof(PageId));
  o.end = end;
  return o;
}

uint64_t StepBlock::bytes_max(const StepLimits& limits) {
  return offsets_of(limits).end;
}

Result<StepBlock> StepBlock::create(const StepLimits& limits) {
  HEADWATER_ASSIGN_OR_RETURN(Buffer memory, Buffer::create(bytes_max(limits)));
  return create(limits, std::move(memory), nullptr);
}

StepBlock StepBlock::create(const StepLimits& limits, Buffer memory, std::shared_ptr<DeviceCopy> device_copy) {
  check(memory.size() >= bytes_max(limits), "memory too small for a step block");
  StepBlock block;
  block.limits_ = limits;
  block.offsets_ = offsets_of(limits);
  block.memory_ = std::move(memory);
  block.device_copy_ = std::move(device_copy);
  return block;
}

template <typename T>
std::span<const T> StepBlock::copy(std::span<const T> from, uint64_t offset, uint64_t count_max) const {
  check(from.size() <= count_max, "the plan is larger than the step block's limits");
  const std::span<T> to = at<T>(offset, from.size());
  std::copy(from.begin(), from.end(), to.begin());
  return to;
}

void StepBlock::layout(uint32_t sequences, uint32_t tokens, uint32_t logits, uint32_t page_ids) {
  check(sequences <= limits_.sequences_max && tokens <= limits_.tokens_max && logits <= limits_.logits_max &&
            page_ids <= uint64_t{limits_.sequences_max} * limits_.pages_per_sequence_max,
        "the step is larger than its limits");
  for (uint32_t i = 0; i < limits_.plans; ++i) {
    header(i) = {.tokens = tokens, .sequences = sequences, .logits = logits};
  }
  token_ids_ = at<TokenId>(offsets_.token_ids, tokens);
  positions_ = at<uint32_t>(offsets_.positions, tokens);
  append_pages_ = at<PageId>(offsets_.append_pages, tokens);
  append_slots_ = at<uint32_t>(offsets_.append_slots, tokens);
  logits_tokens_ = at<uint32_t>(offsets_.logits_tokens, logits);
  page_ids_ = at<PageId>(offsets_.page_ids, page_ids);
  page_indptr_ = at<uint32_t>(offsets_.page_indptr, sequences + 1);
  kv_len_ = at<uint32_t>(offsets_.kv_len, sequences);
  q_indptr_ = at<uint32_t>(offsets_.q_indptr, sequences + 1);
  versions_ = at<uint64_t>(offsets_.versions, sequences);
  plans_ = {};
}

attention::PageTable StepBlock::page_table() const {
  return {limits_.page_size, page_indptr_, page_ids_, kv_len_, q_indptr_, versions_};
}

void StepBlock::set_plan(const attention::Plan& plan, uint32_t index) {
  check(index < limits_.plans, "a plan beyond StepLimits::plans");
  const attention::PlanLimits limits = limits_.plan_limits();
  const PlanOffsets& offsets = offsets_.plans[index];
  attention::Plan& own = plans_[index];
  own = plan;
  own.items = copy(plan.items, offsets.items, limits.items_max());
  if (device_copy_ != nullptr) set_first_pages(plan.items, offsets.first_pages);
  own.token_order = copy(plan.token_order, offsets.token_order, limits_.tokens_max);
  own.token_position = copy(plan.token_position, offsets.token_position, limits_.tokens_max);
  own.merge_indptr = copy(plan.merge_indptr, offsets.merge_indptr, uint64_t{limits_.tokens_max} + 1);
  own.merge_slots = copy(plan.merge_slots, offsets.merge_slots, limits.partials_max());
  own.token_empty = copy(plan.token_empty, offsets.token_empty, limits_.tokens_max);
  StepHeader& of_plan = header(index);
  of_plan.items = static_cast<uint32_t>(plan.items.size());
  of_plan.items_large = plan.items_large;
  of_plan.reads_again = plan.outcome.bytes_read > plan.outcome.bytes_unique + plan.outcome.bytes_unique / 4;
  of_plan.partials = plan.partials;
  of_plan.keys_new = plan.keys_new;
}

void StepBlock::set_first_pages(std::span<const attention::WorkItem> items, uint64_t offset) const {
  PageId* to = at<PageId>(offset, items.size() * kFirstPages).data();
  for (const attention::WorkItem& item : items) {
    const uint32_t last = item.page_begin + (item.key_count - 1) / limits_.page_size;
    for (uint32_t i = 0; i < kFirstPages; ++i) *to++ = page_ids_[std::min(item.page_begin + i, last)];
  }
}

DeviceBatch StepBlock::host_batch() const {
  return batch_at(memory_.data());
}

DeviceBatch StepBlock::batch_at(const std::byte* base) const {
  // Also an empty array has its place: what is recorded of this step reads the arrays of later ones.
  const auto view = [&]<typename T>(std::span<T> of, uint64_t offset) {
    return std::span<const T>(reinterpret_cast<const T*>(base + offset), of.size());
  };
  DeviceBatch batch{.tokens = static_cast<uint32_t>(token_ids_.size()),
                    .sequences = static_cast<uint32_t>(kv_len_.size()),
                    .token_ids = view(token_ids_, offsets_.token_ids),
                    .positions = view(positions_, offsets_.positions),
                    .append_pages = view(append_pages_, offsets_.append_pages),
                    .append_slots = view(append_slots_, offsets_.append_slots),
                    .logits_tokens = view(logits_tokens_, offsets_.logits_tokens),
                    .page_ids = view(page_ids_, offsets_.page_ids)};
  for (uint32_t i = 0; i < limits_.plans; ++i) {
    const attention::Plan& own = plans_[i];
    const PlanOffsets& offsets = offsets_.plans[i];
    DevicePlan& plan = batch.plans[i];
    plan = {own, reinterpret_cast<const StepHeader*>(base + offsets.header), limits_.plan_limits().items_max()};
    plan.items = view(own.items, offsets.items);
    plan.first_pages = {reinterpret_cast<const PageId*>(base + offsets.first_pages), own.items.size() * kFirstPages};
    plan.token_order = view(own.token_order, offsets.token_order);
    plan.token_position = view(own.token_position, offsets.token_position);
    plan.merge_indptr = view(own.merge_indptr, offsets.merge_indptr);
    plan.merge_slots = view(own.merge_slots, offsets.merge_slots);
    plan.token_empty = view(own.token_empty, offsets.token_empty);
  }
  return batch;
}

uint32_t recorded_rows(uint32_t rows) {
  if (rows <= 16) return std::bit_ceil(rows);
  const uint32_t step = rows <= 64 ? 8 : rows <= 128 ? 16 : 32;
  return (rows + step - 1) / step * step;
}

DeviceBatch DeviceBatch::padded(uint32_t rows) const {
  DeviceBatch batch = *this;
  batch.tokens = rows;
  batch.token_ids = {token_ids.data(), rows};
  batch.positions = {positions.data(), rows};
  batch.append_pages = {append_pages.data(), rows};
  batch.append_slots = {append_slots.data(), rows};
  batch.logits_tokens = {logits_tokens.data(), rows};
  return batch;
}

std::span<const std::byte> StepBlock::bytes() const {
  return {memory_.data(), offsets_.page_ids + aligned(page_ids_.size_bytes())};
}

}  // namespace headwater::ops
