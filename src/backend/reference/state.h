// The algebra that makes cutting keys legal: softmax attention over disjoint key sets merges exactly.
//
// A state is (v[D], lse2) of one row: v = sum p_k v_k / l, lse2 = m + log2(l), where m is the largest base-2 score and
// l = sum 2^(score_k - m). For two states over disjoint keys
//   m = max(a.lse2, b.lse2),  w_x = 2^(x.lse2 - m),  v = (w_a a.v + w_b b.v) / (w_a + w_b),  lse2 = m + log2(w_a +
//   w_b).
// The empty state, v = 0 and lse2 = -inf, is the identity to the last bit; +inf can only come from outside and counts
// as empty; so merging never makes a NaN. (It passes one on: a row whose query is NaN stays NaN.) Source: Milakov,
// Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867; Ye et al., "Cascade Inference" and
// FlashInfer's documentation of attention states, "Recursive Attention".
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace headwater::backend::reference {

inline constexpr double kEmptyLse2 = -std::numeric_limits<double>::infinity();

inline bool is_empty(double lse2) {
  return std::isinf(lse2);
}

// into = into merged with from; both of the same width, in place.
inline void merge_state(std::span<double> into_v, double& into_lse2, std::span<const double> from_v, double from_lse2) {
  if (is_empty(into_lse2)) {
    if (is_empty(from_lse2)) {
      std::fill(into_v.begin(), into_v.end(), 0.0);
      into_lse2 = kEmptyLse2;
    } else {
      std::copy(from_v.begin(), from_v.end(), into_v.begin());
      into_lse2 = from_lse2;
    }
    return;
  }
  if (is_empty(from_lse2)) return;
  const double m = std::max(into_lse2, from_lse2);
  const double into_weight = std::exp2(into_lse2 - m);
  const double from_weight = std::exp2(from_lse2 - m);
  const double l = into_weight + from_weight;
  for (size_t d = 0; d < into_v.size(); ++d) into_v[d] = (into_weight * into_v[d] + from_weight * from_v[d]) / l;
  into_lse2 = m + std::log2(l);
}

// Many states of one width; storage grows and is kept.
class States {
 public:
  void reset(size_t count, size_t width) {
    width_ = width;
    v_.assign(count * width, 0.0);
    lse2_.assign(count, kEmptyLse2);
  }
  size_t size() const { return lse2_.size(); }
  std::span<double> v(size_t index) { return {v_.data() + index * width_, width_}; }
  std::span<const double> v(size_t index) const { return {v_.data() + index * width_, width_}; }
  double& lse2(size_t index) { return lse2_[index]; }
  double lse2(size_t index) const { return lse2_[index]; }

  void set(size_t into, const States& other, size_t from) {
    std::copy_n(other.v(from).data(), width_, v(into).data());
    lse2_[into] = other.lse2(from);
  }
  void merge(size_t into, const States& other, size_t from) {
    merge_state(v(into), lse2_[into], other.v(from), other.lse2(from));
  }

 private:
  size_t width_ = 0;
  std::vector<double> v_;
  std::vector<double> lse2_;
};

}  // namespace headwater::backend::reference
