#include "attention/emit.h"

#include <algorithm>

namespace headwater::attention {

Emitter::Emitter(const Rules& rules) : rules_(rules) {
  const size_t items = rules.limits.items_max();
  depth_first_.resize(items);
  longest_first_.resize(items);
  depth_first_origin_.resize(items);
  origin_.resize(items);
  sorted_.resize(items);
  token_order_.resize(rules.limits.tokens_max);
  token_position_.resize(rules.limits.tokens_max);
  token_empty_.resize(rules.limits.tokens_max);
  merge_end_.resize(rules.limits.tokens_max);
  merge_indptr_.resize(size_t{rules.limits.tokens_max} + 1);
  merge_slots_.resize(rules.limits.partials_max());
}

void Emitter::emit(const PageTable& table, const PrefixForest& forest, std::span<const Draft> drafts,
                   const Balance& balance, Plan& plan) {
  tokens_ = table.tokens();
  lay_out_tokens(table, forest);
  lay_out_items(table, drafts, balance.piece_ns);
  check(items_ == balance.items && partials_ == balance.partials, "a plan differs from what was counted for it");
  lay_out_merge();
  sort_items();
  plan.items = {longest_first_.data(), items_};
  plan.token_order = {token_order_.data(), tokens_};
  plan.token_position = {token_position_.data(), tokens_};
  plan.merge_indptr = {merge_indptr_.data(), size_t{tokens_} + 1};
  plan.merge_slots = {merge_slots_.data(), partials_};
  plan.token_empty = {token_empty_.data(), tokens_};
  plan.items_large = items_large_;
  plan.partials = partials_;
}

// Tokens of padded rows come last.
void Emitter::lay_out_tokens(const PageTable& table, const PrefixForest& forest) {
  uint32_t t = 0;
  const auto append = [&](uint32_t sequence, bool empty) {
    const uint32_t q_len = table.q_indptr[sequence + 1] - table.q_indptr[sequence];
    for (uint32_t i = 0; i < q_len; ++i, ++t) {
      token_order_[t] = table.q_indptr[sequence] + i;
      token_position_[t] = empty ? 0 : table.kv_len[sequence] - q_len + i;
      token_empty_[t] = empty;
    }
  };
  for (uint32_t s : forest.order()) append(s, false);
  if (t == tokens_) return;
  for (uint32_t s = 0; s < table.sequences(); ++s) {
    if (table.kv_len[s] == 0) append(s, true);
  }
}

void Emitter::lay_out_items(const PageTable& table, std::span<const Draft> drafts, double piece_ns) {
  items_ = 0;
  items_large_ = 0;
  partials_ = 0;
  for (const Draft& draft : drafts) {
    const uint32_t pieces = pieces_of(rules_, draft, piece_ns);
    for (uint32_t p = 0; p < pieces; ++p, ++items_) {
      const Piece piece = piece_of(rules_, draft, pieces, p);
      const uint32_t page = piece.key_begin / rules_.page_size();
      const bool folds = draft.folds && p == 0;
      const uint32_t flags = piece.states == 0 ? kFold | kDirect : folds ? kFold : 0;
      depth_first_[items_] = {.token_begin = draft.block.token_begin,
                              .token_count = draft.block.token_count,
                              .page_begin = table.page_indptr[draft.sequence] + page,
                              .key_begin = piece.key_begin,
                              .key_count = piece.key_end - piece.key_begin,
                              .partial_begin = partials_,
                              .flags = flags};
      depth_first_origin_[items_] = {draft.sequence, page, piece.states, draft.leaf && p + 1 == pieces};
      sorted_[items_] = longest_first_key(piece.cost, items_);
      if (rules_.is_large(draft.block.token_count)) {  // before all others
        sorted_[items_] &= ~(uint64_t{1} << 63);
        ++items_large_;
      }
      partials_ += piece.states * draft.block.token_count;
    }
  }
}

// Depth first, the items of one token come in key order.
void Emitter::lay_out_merge() {
  std::fill_n(merge_end_.begin(), tokens_, 0u);
  for (uint32_t i = 0; i < items_; ++i) {
    uint32_t* count = merge_end_.data() + depth_first_[i].token_begin;
    for (uint32_t j = 0; j < depth_first_[i].token_count; ++j) count[j] += depth_first_origin_[i].states;
  }
  uint32_t sum = 0;
  for (uint32_t t = 0; t < tokens_; ++t) {
    merge_indptr_[t] = sum;
    sum += merge_end_[t];
    merge_end_[t] = merge_indptr_[t];
  }
  merge_indptr_[tokens_] = sum;
  for (uint32_t i = 0; i < items_; ++i) {
    const WorkItem& item = depth_first_[i];
    uint32_t* end = merge_end_.data() + item.token_begin;
    uint32_t slot = item.partial_begin;
    for (uint32_t c = 0; c < depth_first_origin_[i].states; ++c) {
      for (uint32_t j = 0; j < item.token_count; ++j) merge_slots_[end[j]++] = slot++;
    }
  }
}

void Emitter::sort_items() {
  std::sort(sorted_.begin(), sorted_.begin() + items_);
  for (uint32_t i = 0; i < items_; ++i) {
    longest_first_[i] = depth_first_[index_of(sorted_[i])];
    origin_[i] = depth_first_origin_[index_of(sorted_[i])];
  }
}

uint64_t Emitter::grow(const PageTable& table, const PrefixForest& forest, std::span<const uint32_t> growth) {
  uint64_t keys = 0;
  for (uint32_t i = 0; i < items_; ++i) {
    const Origin& origin = origin_[i];
    longest_first_[i].page_begin = table.page_indptr[origin.sequence] + origin.page;
    if (!origin.grows) continue;
    longest_first_[i].key_count += growth[origin.sequence];
    keys += growth[origin.sequence];
  }
  uint32_t t = 0;
  for (uint32_t s : forest.order()) {
    const uint32_t q_len = table.q_indptr[s + 1] - table.q_indptr[s];
    for (uint32_t j = 0; j < q_len; ++j) token_position_[t++] += growth[s];
  }
  return keys;
}

}  // namespace headwater::attention
