#include "attention/update.h"

#include <algorithm>

namespace headwater::attention {

PreviousStep::PreviousStep(const Rules& rules) : rules_(rules) {
  versions_.reserve(rules.limits.sequences_max);
  q_indptr_.reserve(size_t{rules.limits.sequences_max} + 1);
  kv_len_.reserve(rules.limits.sequences_max);
  kv_len_limit_.reserve(rules.limits.sequences_max);
  growth_.reserve(rules.limits.sequences_max);
}

Reuse PreviousStep::reusable(const PageTable& table) {
  if (!known_ || !std::ranges::equal(versions_, table.versions) || !std::ranges::equal(q_indptr_, table.q_indptr)) {
    return Reuse::kNothing;
  }
  bool within = true;
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    const uint32_t kv_len = table.kv_len[r];
    if (kv_len < kv_len_[r] || (kv_len > 0) != (kv_len_[r] > 0)) return Reuse::kNothing;
    within &= kv_len <= kv_len_limit_[r];
    growth_[r] = kv_len - kv_len_[r];
  }
  return within ? Reuse::kPlan : Reuse::kForest;
}

void PreviousStep::remember(const PageTable& table, bool overlaps) {
  known_ = !overlaps && !table.versions.empty() && std::ranges::find(table.versions, 0u) == table.versions.end();
  if (!known_) return;
  versions_.assign(table.versions.begin(), table.versions.end());
  q_indptr_.assign(table.q_indptr.begin(), table.q_indptr.end());
  kv_len_.assign(table.kv_len.begin(), table.kv_len.end());
  kv_len_limit_.resize(kv_len_.size());
  growth_.resize(kv_len_.size());
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    kv_len_limit_[r] = kv_len_[r] + room_left(kv_len_[r], q_indptr_[r + 1] - q_indptr_[r]);
  }
}

void PreviousStep::advance(const PageTable& table) {
  std::ranges::copy(table.kv_len, kv_len_.begin());
}

// Tokens that a sequence may grow by before the end of one of its token blocks leaves its quantum, or the window of one
// leaves its own.
uint32_t PreviousStep::room_left(uint32_t kv_len, uint32_t q_len) const {
  if (kv_len == 0 || q_len == 0) return 0;
  uint32_t room = rules_.quantum;
  const uint32_t block = rules_.device.tokens_item_max;
  for (uint32_t first = 0; first < q_len; first += std::min(block, q_len - first)) {
    const uint32_t position = kv_len - q_len + first;
    const uint32_t end = position + std::min(block, q_len - first);
    room = std::min(room, rules_.round_up(end) - end);
    const uint32_t window = rules_.settings.window;
    if (window > 0) room = std::min(room, rules_.visible_from(position) + rules_.quantum + window - 2 - position);
  }
  return room;
}

}  // namespace headwater::attention
