// Brute force over a plan: every (query token, visible key) pair is read exactly once, from the right page, and merged
// in key order. Returns the first violation in words, or an empty string.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "core/core.h"

namespace headwater::testing {

class PlanAudit {
 public:
  PlanAudit(const attention::Plan& plan, const attention::PageTable& table, const attention::Planner& planner,
            uint32_t tokens_item_max)
      : plan_(plan), table_(table), planner_(planner), tokens_item_max_(tokens_item_max) {}

  std::string run() {
    std::string found = tokens();
    if (found.empty()) found = items();
    for (uint32_t t = 0; found.empty() && t < table_.tokens(); ++t) found = token(t);
    if (found.empty() && std::ranges::find(slot_used_, 0) != slot_used_.end()) found = "a partial is never merged";
    return found;
  }

 private:
  // Plan positions are a permutation of the batch's tokens, each sequence's in one stretch.
  std::string tokens() {
    const uint32_t tokens = table_.tokens();
    if (plan_.token_order.size() != tokens) return "token_order has the wrong size";
    std::vector<uint32_t> seen(tokens), sequence_of_batch(tokens);
    for (uint32_t r = 0; r < table_.sequences(); ++r) {
      for (uint32_t t = table_.q_indptr[r]; t < table_.q_indptr[r + 1]; ++t) sequence_of_batch[t] = r;
    }
    sequence_.resize(tokens);
    for (uint32_t t = 0; t < tokens; ++t) {
      const uint32_t batch = plan_.token_order[t];
      if (batch >= tokens || seen[batch]++ > 0) return fmt::format("token_order[{}] = {} is no permutation", t, batch);
      const uint32_t r = sequence_of_batch[batch];
      sequence_[t] = r;
      if (batch > table_.q_indptr[r] && (t == 0 || plan_.token_order[t - 1] != batch - 1)) {
        return fmt::format("the tokens of sequence {} are not contiguous", r);
      }
      const bool empty = table_.kv_len[r] == 0;
      const uint32_t position = empty ? 0 : table_.kv_len[r] - (table_.q_indptr[r + 1] - batch);
      if (plan_.token_position[t] != position)
        return fmt::format("token {} has position {}", t, plan_.token_position[t]);
      if (plan_.token_empty[t] != empty) return fmt::format("token {} has the wrong token_empty", t);
    }
    return {};
  }

  std::string items() {
    items_of_.resize(table_.tokens());
    slot_used_.resize(plan_.partials);
    const attention::PlanLimits& limits = planner_.limits();
    if (plan_.items.size() > limits.items_max() || plan_.partials > limits.partials_max()) return "arrays exceeded";
    for (uint32_t i = 0; i < plan_.items.size(); ++i) {
      const attention::WorkItem& item = plan_.items[i];
      if (item.token_count == 0 || item.token_count > tokens_item_max_)
        return fmt::format("item {} has {} tokens", i, item.token_count);
      if (item.key_count == 0) return fmt::format("item {} has no key", i);
      const uint32_t quantum = planner_.settings().invariant ? plan_.cut : table_.page_size;
      if (item.key_begin % quantum != 0) return fmt::format("item {} begins inside a cut", i);
      const uint32_t end = item.key_begin + item.key_count;
      const uint32_t last = item.token_begin + item.token_count - 1;
      if (last >= table_.tokens()) return fmt::format("item {} has tokens beyond the plan's", i);
      if (end % quantum != 0 && end != plan_.token_position[last] + 1)
        return fmt::format("item {} ends inside a cut", i);
      for (uint32_t t = item.token_begin; t <= last; ++t) items_of_[t].push_back(i);
    }
    if (plan_.outcome.items != plan_.items.size()) return "outcome.items is wrong";
    return {};
  }

  std::string token(uint32_t t) {
    std::vector<uint32_t>& items = items_of_[t];
    if (plan_.token_empty[t]) return items.empty() && merge(t).empty() ? "" : fmt::format("empty token {} has work", t);
    std::ranges::sort(items, {}, [&](uint32_t i) { return plan_.items[i].key_begin; });
    std::vector<uint32_t> slots;
    const uint32_t position = plan_.token_position[t];
    const uint32_t window = plan_.window;
    uint32_t next = window == 0 || position < window ? 0 : position - window + 1;  // first visible key not read yet
    for (size_t n = 0; n < items.size(); ++n) {
      const attention::WorkItem& item = plan_.items[items[n]];
      const bool folds = item.flags & attention::kFold;
      const bool direct = item.flags & attention::kDirect;
      if (folds != (n == 0)) return fmt::format("token {}: item {} has the wrong kFold", t, n);
      if (direct != (items.size() == 1)) return fmt::format("token {}: item {} has the wrong kDirect", t, n);
      if (n > 0 && item.key_begin < previous_end_) return fmt::format("token {} reads key {} twice", t, item.key_begin);
      previous_end_ = item.key_begin + item.key_count;
      if (item.key_begin > next) return fmt::format("token {} misses key {}", t, next);
      next = std::max(next, previous_end_);
      if (std::string wrong = pages(t, item); !wrong.empty()) return wrong;
      if (direct) continue;
      const uint32_t states = folds ? 1 : (previous_end_ - 1) / plan_.cut - item.key_begin / plan_.cut + 1;
      for (uint32_t c = 0; c < states; ++c) {
        slots.push_back(item.partial_begin + c * item.token_count + t - item.token_begin);
      }
    }
    if (next <= position) return fmt::format("token {} misses key {}", t, next);
    if (!std::ranges::equal(slots, merge(t))) return fmt::format("token {} merges the wrong partials", t);
    for (uint32_t slot : slots) {
      if (slot >= plan_.partials || slot_used_[slot]++ > 0)
        return fmt::format("slot {} is out of range or used twice", slot);
    }
    return {};
  }

  std::string pages(uint32_t t, const attention::WorkItem& item) const {
    const uint32_t size = table_.page_size;
    const uint32_t last = std::min(plan_.token_position[t], item.key_begin + item.key_count - 1);
    for (uint32_t page = item.key_begin / size; page * size <= last; ++page) {
      const PageId read = table_.page_ids[item.page_begin + page - item.key_begin / size];
      if (read != table_.page_ids[table_.page_indptr[sequence_[t]] + page]) {
        return fmt::format("token {} reads page {} of another sequence", t, page);
      }
    }
    return {};
  }

  std::span<const uint32_t> merge(uint32_t t) const {
    return plan_.merge_slots.subspan(plan_.merge_indptr[t], plan_.merge_indptr[t + 1] - plan_.merge_indptr[t]);
  }

  const attention::Plan& plan_;
  const attention::PageTable& table_;
  const attention::Planner& planner_;
  uint32_t tokens_item_max_;
  uint32_t previous_end_ = 0;
  std::vector<uint32_t> sequence_;  // by plan position
  std::vector<std::vector<uint32_t>> items_of_;
  std::vector<int> slot_used_;
};

// Bytes of the outcome against the table: unique pages by id, flat by sequence (tables without token blocks).
inline uint64_t unique_keys(const attention::PageTable& table) {
  std::map<PageId, uint32_t> keys;
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    if (table.q_indptr[r + 1] == table.q_indptr[r]) continue;
    for (uint32_t begin = 0, i = table.page_indptr[r]; begin < table.kv_len[r]; begin += table.page_size, ++i) {
      uint32_t& most = keys[table.page_ids[i]];
      most = std::max(most, std::min(table.page_size, table.kv_len[r] - begin));
    }
  }
  uint64_t sum = 0;
  for (const auto& [page, count] : keys) sum += count;
  return sum;
}

}  // namespace headwater::testing
