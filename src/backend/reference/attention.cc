#include "backend/reference/attention.h"

#include <numbers>

#include "backend/reference/dot.h"

namespace headwater::backend::reference {
namespace {

using attention::WorkItem;
using ops::AttentionParams;

uint32_t group_of(const AttentionParams& params) {
  return params.q_heads / params.pool->shape().kv_heads;
}

double sink_lse2(const AttentionParams& params, uint32_t q_head) {
  const float* sinks = params.variant.sinks;
  return sinks == nullptr ? kEmptyLse2 : static_cast<double>(sinks[q_head]) * std::numbers::log2e;
}

double score2(const ops::AttentionVariant& variant, double product) {
  double score = variant.scale * product;
  if (variant.softcap > 0) score = variant.softcap * std::tanh(score / variant.softcap);
  return score * std::numbers::log2e;
}

}  // namespace

void Attention::attend(const AttentionParams& params) {
  const ops::KvShape& shape = params.pool->shape();
  check(params.q_heads % shape.kv_heads == 0, "query heads are a multiple of KV heads");
  partials_.reset(uint64_t{params.batch->plans[params.plan].partials} * params.q_heads, shape.v_head_dim);
  for (const WorkItem& item : params.batch->plans[params.plan].items) {
    for (uint32_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) attend_item(params, item, kv_head);
    kv_bytes_read_ += item.key_count * shape.bytes_token_layer();
  }
}

void Attention::attend_item(const AttentionParams& params, const WorkItem& item, uint32_t kv_head) {
  const ops::KvShape& shape = params.pool->shape();
  const uint32_t group = group_of(params), cut = params.batch->plans[params.plan].cut;
  const bool folds = (item.flags & (attention::kFold | attention::kDirect)) != 0;
  const uint32_t rows = item.token_count * group;
  load_queries(params, item, kv_head);
  folded_.reset(rows, shape.v_head_dim);
  for (uint32_t row = 0; row < rows; ++row) folded_.lse2(row) = sink_lse2(params, kv_head * group + row % group);

  const uint32_t key_end = item.key_begin + item.key_count;
  uint32_t slot = item.partial_begin;
  for (uint32_t begin = item.key_begin; begin < key_end;) {
    const uint32_t cut_end = std::min<uint64_t>(key_end, (uint64_t{begin} / cut + 1) * cut);
    cut_.reset(rows, shape.v_head_dim);
    while (begin < cut_end) {
      const uint32_t end = std::min<uint64_t>(cut_end, (uint64_t{begin} / shape.page_size + 1) * shape.page_size);
      load_block(params, item, kv_head, {begin, end});
      attend_block(params, item, {begin, end});
      begin = end;
    }
    if (folds) {
      for (uint32_t row = 0; row < rows; ++row) folded_.merge(row, cut_, row);
    } else {
      emit(params, item, kv_head, slot, cut_);
      slot += item.token_count;
    }
  }
  if (folds) emit(params, item, kv_head, slot, folded_);
}

void Attention::load_queries(const AttentionParams& params, const WorkItem& item, uint32_t kv_head) {
  const uint32_t width = params.pool->shape().head_dim, group = group_of(params);
  queries_.clear();
  for (uint32_t j = 0; j < item.token_count; ++j) {
    const uint32_t token = params.batch->plans[params.plan].token_order[item.token_begin + j];
    const float* heads = params.q.row(token) + uint64_t{kv_head} * group * width;
    queries_.insert(queries_.end(), heads, heads + uint64_t{group} * width);
  }
}

void Attention::load_block(const AttentionParams& params, const WorkItem& item, uint32_t kv_head, Block block) {
  const auto& pool = static_cast<const Pool&>(*params.pool);
  const ops::KvShape& shape = pool.shape();
  const uint32_t page_index = item.page_begin + (block.begin / shape.page_size - item.key_begin / shape.page_size);
  const Pool::Place place{params.layer, params.batch->page_ids[page_index], kv_head, block.begin % shape.page_size};
  const uint32_t slots = block.end - block.begin;
  loaded_.resize(uint64_t{slots} * std::max(shape.head_dim, shape.v_head_dim));
  pool.load_keys(place, slots, loaded_.data());
  keys_.assign(loaded_.begin(), loaded_.begin() + uint64_t{slots} * shape.head_dim);
  pool.load_values(place, slots, loaded_.data());
  values_.assign(loaded_.begin(), loaded_.begin() + uint64_t{slots} * shape.v_head_dim);
}

void Attention::attend_block(const AttentionParams& params, const WorkItem& item, Block block) {
  const attention::Plan& plan = params.batch->plans[params.plan];
  const uint32_t group = group_of(params), width = params.pool->shape().head_dim;
  for (uint32_t j = 0; j < item.token_count; ++j) {
    const uint64_t position = plan.token_position[item.token_begin + j];
    const uint64_t first = plan.window == 0 || position < plan.window ? 0 : position - plan.window + 1;
    const Block visible{static_cast<uint32_t>(std::max<uint64_t>(block.begin, first)),
                        static_cast<uint32_t>(std::min<uint64_t>(block.end, position + 1))};
    if (visible.begin >= visible.end || plan.token_empty[item.token_begin + j] != 0) continue;
    for (uint32_t row = j * group; row < (j + 1) * group; ++row) {
      attend_row(params.variant, queries_.data() + uint64_t{row} * width, block, visible);
      cut_.merge(row, block_, 0);
    }
  }
}

// Only visible keys and values are read: the others may be NaN.
void Attention::attend_row(const ops::AttentionVariant& variant, const double* query, Block loaded, Block visible) {
  const size_t slots = loaded.end - loaded.begin;
  const size_t width = keys_.size() / slots, v_width = values_.size() / slots;
  block_.reset(1, v_width);
  scores_.clear();
  for (uint32_t key = visible.begin; key < visible.end; ++key) {
    scores_.push_back(score2(variant, dot(query, keys_.data() + (key - loaded.begin) * width, width)));
  }
  const double m = *std::max_element(scores_.begin(), scores_.end());
  if (m == kEmptyLse2) return;
  double l = 0;
  double* v = block_.v(0).data();
  for (uint32_t key = visible.begin; key < visible.end; ++key) {
    const double weight = std::exp2(scores_[key - visible.begin] - m);
    const double* value = values_.data() + (key - loaded.begin) * v_width;
    l += weight;
    for (size_t d = 0; d < v_width; ++d) v[d] += weight * value[d];
  }
  for (size_t d = 0; d < v_width; ++d) v[d] /= l;
  block_.lse2(0) = m + std::log2(l);
}

void Attention::emit(const AttentionParams& params, const WorkItem& item, uint32_t kv_head, uint32_t slot,
                     const States& states) {
  const uint32_t group = group_of(params);
  for (uint32_t row = 0; row < item.token_count * group; ++row) {
    const uint32_t j = row / group, q_head = kv_head * group + row % group;
    if ((item.flags & attention::kDirect) != 0) {
      write(params, params.batch->plans[params.plan].token_order[item.token_begin + j], q_head, states, row);
    } else {
      check(slot + j < params.batch->plans[params.plan].partials, "a partial slot outside the plan");
      partials_.set(uint64_t{slot + j} * params.q_heads + q_head, states, row);
    }
  }
}

void Attention::merge(const AttentionParams& params) {
  const attention::Plan& plan = params.batch->plans[params.plan];
  for (uint32_t i = 0; i < params.batch->tokens; ++i) {
    const bool is_direct = plan.merge_indptr[i] == plan.merge_indptr[i + 1];
    if (is_direct && plan.token_empty[i] == 0) continue;
    for (uint32_t q_head = 0; q_head < params.q_heads; ++q_head) {
      row_.reset(1, params.pool->shape().v_head_dim);
      if (plan.token_empty[i] != 0) {
        row_.lse2(0) = sink_lse2(params, q_head);
      } else {
        for (uint32_t at = plan.merge_indptr[i]; at < plan.merge_indptr[i + 1]; ++at) {
          row_.merge(0, partials_, uint64_t{plan.merge_slots[at]} * params.q_heads + q_head);
        }
      }
      write(params, plan.token_order[i], q_head, row_, 0);
    }
  }
}

void Attention::write(const AttentionParams& params, uint32_t token, uint32_t q_head, const States& states,
                      size_t index) {
  const std::span<const double> v = states.v(index);
  float* out = params.out.row(token) + uint64_t{q_head} * v.size();
  for (size_t d = 0; d < v.size(); ++d) out[d] = static_cast<float>(v[d]);
  if (params.lse2 != nullptr)
    params.lse2[uint64_t{token} * params.q_heads + q_head] = static_cast<float>(states.lse2(index));
}

}  // namespace headwater::backend::reference
