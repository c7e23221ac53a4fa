// Attention straight from the page table: no plan, no cuts, no states. For each row one softmax over the keys it sees,
// in double. What the reference back end and every other one is held against.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "attention/plan.h"
#include "ops/backend.h"

namespace headwater::testing {

struct NaiveAttention {
  uint32_t kv_heads = 0;
  uint32_t q_heads = 0;
  uint32_t head_dim = 0;
  uint32_t v_head_dim = 0;
  uint32_t window = 0;
  ops::AttentionVariant variant;
  // Key and value of a slot, as the pool's dtype rounds them: [head_dim], [v_head_dim].
  std::function<const float*(PageId, uint32_t slot, uint32_t kv_head)> key;
  std::function<const float*(PageId, uint32_t slot, uint32_t kv_head)> value;

  struct Output {
    std::vector<double> v;     // [T, q_heads, v_head_dim]
    std::vector<double> lse2;  // [T, q_heads]
  };

  // q: [T, q_heads * head_dim] with a row stride.
  Output run(const attention::PageTable& table, const ops::Matrix& q) const {
    Output output{std::vector<double>(uint64_t{table.tokens()} * q_heads * v_head_dim),
                  std::vector<double>(uint64_t{table.tokens()} * q_heads)};
    for (uint32_t sequence = 0; sequence < table.sequences(); ++sequence) {
      const uint32_t q_len = table.q_indptr[sequence + 1] - table.q_indptr[sequence];
      for (uint32_t i = 0; i < q_len; ++i) {
        const uint32_t token = table.q_indptr[sequence] + i;
        const uint32_t length = table.kv_len[sequence];
        const int64_t last = length == 0 ? -1 : int64_t{length} - q_len + i;  // the token's own position
        for (uint32_t head = 0; head < q_heads; ++head) {
          const uint64_t row = uint64_t{token} * q_heads + head;
          output.lse2[row] = run_row(table, sequence, last, head, q.row(token) + uint64_t{head} * head_dim,
                                     &output.v[row * v_head_dim]);
        }
      }
    }
    return output;
  }

 private:
  double run_row(const attention::PageTable& table, uint32_t sequence, int64_t last, uint32_t head, const float* query,
                 double* v) const {
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, last - window + 1);
    const auto page_of = [&](int64_t at) {
      return table.page_ids[table.page_indptr[sequence] + static_cast<uint32_t>(at) / table.page_size];
    };
    const uint32_t kv_head = head / (q_heads / kv_heads);
    const double sink = variant.sinks == nullptr ? -std::numeric_limits<double>::infinity() : variant.sinks[head];
    std::vector<double> scores;
    double peak = sink;
    for (int64_t at = first; at <= last; ++at) {
      const float* k = key(page_of(at), static_cast<uint32_t>(at) % table.page_size, kv_head);
      double score = 0;
      for (uint32_t d = 0; d < head_dim; ++d) score += static_cast<double>(query[d]) * k[d];
      score *= variant.scale;
      if (variant.softcap > 0) score = variant.softcap * std::tanh(score / variant.softcap);
      scores.push_back(score);
      peak = std::max(peak, score);
    }
    if (scores.empty()) return sink * std::numbers::log2e;
    double total = std::exp(sink - peak);
    for (int64_t at = first; at <= last; ++at) {
      const double weight = std::exp(scores[static_cast<size_t>(at - first)] - peak);
      const float* x = value(page_of(at), static_cast<uint32_t>(at) % table.page_size, kv_head);
      total += weight;
      for (uint32_t d = 0; d < v_head_dim; ++d) v[d] += weight * x[d];
    }
    for (uint32_t d = 0; d < v_head_dim; ++d) v[d] /= total;
    return (peak + std::log(total)) * std::numbers::log2e;
  }
};

}  // namespace headwater::testing
