// From scores to weights, and what two parts of a softmax become together.
#pragma once

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/vector_dots-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static inline uint32_t most(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}
static inline uint32_t round_down(uint32_t value, uint32_t unit) {
  return value - value % unit;
}
static inline uint32_t round_up(uint32_t value, uint32_t unit) {
  return round_down(value + unit - 1, unit);
}

static inline bool is_empty(float lse2) {
  return lse2 == -kInfinity || lse2 == kInfinity;
}

// What two states, of earlier and of later keys, weigh in their merged one, and its lse2, lane by lane. Neither is empty.
struct Shares {
  F32 into;
  F32 from;
  F32 lse2;
};
static inline Shares shares_of(F32 into_lse2, F32 from_lse2) {
  const F32 top = max(into_lse2, from_lse2);
  const F32 into = exp2(sub(into_lse2, top));
  const F32 from = exp2(sub(from_lse2, top));
  const F32 total = add(into, from);
  return {div(into, total), div(from, total), add(top, log2(total))};
}

// The same of one row.
struct RowShares {
  float into;
  float from;
  float lse2;
};

// Merges the state (values, lse2) of later keys into the state of earlier ones and returns the merged lse2. An empty
// state changes nothing, by branch: the shares are not read.
static inline float merge_values(float* into, float into_lse2, const float* from, float from_lse2, RowShares shares,
                                 uint32_t width) {
  if (is_empty(from_lse2)) return into_lse2;
  if (is_empty(into_lse2)) {
    for (uint32_t i = 0; i < width; i += kLanes) store(into + i, load(from + i));
    return from_lse2;
  }
  for (uint32_t i = 0; i < width; i += kLanes) {
    store(into + i, fma(load(into + i), set1(shares.into), mul(load(from + i), set1(shares.from))));
  }
  return shares.lse2;
}

static inline void merge_state(float* into, float& into_lse2, const float* from, float from_lse2, uint32_t width) {
  RowShares row{};
  if (!is_empty(into_lse2) && !is_empty(from_lse2)) {
    const Shares shares = shares_of(set1(into_lse2), set1(from_lse2));
    row = {first_lane(shares.into), first_lane(shares.from), first_lane(shares.lse2)};
  }
  into_lse2 = merge_values(into, into_lse2, from, from_lse2, row, width);
}

// Keys [begin, end) of a cut, counted from its first page, that a query at `position` sees. Empty: begin == end.
struct View {
  uint32_t begin;
  uint32_t end;
};
static inline View view(uint32_t position, uint32_t window, uint32_t key_begin, uint32_t key_count) {
  const uint32_t seen_end = position + 1;
  const uint32_t seen_begin = window != 0 && seen_end > window ? seen_end - window : 0;
  const uint32_t begin = least(most(seen_begin, key_begin) - key_begin, key_count);
  const uint32_t end = seen_end <= key_begin ? 0 : least(seen_end - key_begin, key_count);
  return {begin, most(begin, end)};
}

// The largest of scores [first, last), multiples of kLanes. Four chains, as the order of maxima does not matter.
static inline float largest(const float* scores, uint32_t first, uint32_t last) {
  F32 top[4] = {load(scores + first), load(scores + first), load(scores + first), load(scores + first)};
  uint32_t i = first;
  for (; i + 4 * kLanes <= last; i += 4 * kLanes) {
    for (uint32_t chain = 0; chain < 4; ++chain) top[chain] = max(top[chain], load(scores + i + chain * kLanes));
  }
  for (; i < last; i += kLanes) top[0] = max(top[0], load(scores + i));
  return reduce_max(max(max(top[0], top[1]), max(top[2], top[3])));
}

// Where a row's view lies in whole vectors. Empty: first == last.
static inline View whole_vectors(View seen) {
  const uint32_t first = round_down(seen.begin, kLanes);
  return {first, seen.begin == seen.end ? first : round_up(seen.end, kLanes)};
}

// Softcap, and -inf for the keys of the first and the last vector that the row does not see; the largest score.
static inline float mask_row(float* scores, View seen, float softcap) {
  const View whole = whole_vectors(seen);
  if (softcap > 0.0f) {
    for (uint32_t i = whole.begin; i < whole.end; i += kLanes) {
      store(scores + i, mul(set1(softcap), tanh(mul(load(scores + i), set1(1.0f / softcap)))));
    }
  }
  const auto keep = [&](uint32_t i, uint32_t from, uint32_t to) {
    store(scores + i, keep_lanes(load(scores + i), from, to, set1(-kInfinity)));
  };
  if (whole.begin < seen.begin) keep(whole.begin, seen.begin - whole.begin, kLanes);
  if (seen.end < whole.end) keep(whole.end - kLanes, 0, seen.end - (whole.end - kLanes));
  return largest(scores, whole.begin, whole.end);
}

// A tile's scores, and the weights that they become.
template <typename Elements>
struct TileWeights {
  float* scores;
  uint32_t scores_stride;
  typename Elements::Factor* weights;
  uint32_t weights_stride;
  const float* value_scales;  // [keys], 0 past the last key; of scaled elements
};

// Turns the scores of rows into weights; writes weights for keys [begin, end) of the tile (multiples of 16), 0 outside a
// row's view. lse2 [kRowsTileMax]: -inf where a row sees nothing. share [kRowsTileMax]: what the sums of the other
// rows are to be multiplied by. All rows go through one stage before the next: within a row the stages wait for each other.
template <typename Elements>
static inline void weigh_rows(const TileWeights<Elements>& tile, const View* seen, uint32_t rows, uint32_t begin,
                              uint32_t end, float softcap, float* share, float* lse2) {
  float top[kRowsTileMax];
  float total[kRowsTileMax];
  for (uint32_t r = 0; r < kRowsTileMax; ++r) top[r] = -kInfinity, total[r] = 1.0f;
  for (uint32_t r = 0; r < rows; ++r) {
    if (seen[r].begin < seen[r].end) top[r] = mask_row(tile.scores + r * tile.scores_stride, seen[r], softcap);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    auto* weights = tile.weights + r * tile.weights_stride;
    const View whole = whole_vectors(seen[r]);
    for (uint32_t i = begin; i < least(whole.begin, end); i += kLanes) Elements::store_factors(weights + i, zero());
    for (uint32_t i = most(whole.end, begin); i < end; i += kLanes) Elements::store_factors(weights + i, zero());
    if (whole.begin == whole.end) continue;
    const float* scores = tile.scores + r * tile.scores_stride;
    if constexpr (Elements::kScaled) {
      total[r] = Elements::store_weights(weights, scores, tile.value_scales, whole.begin, whole.end, set1(top[r]));
    } else {
      total[r] = Elements::store_weights(weights, scores, whole.begin, whole.end, set1(top[r]));
    }
  }
  for (uint32_t r = 0; r < rows; r += kLanes) {
    store(share + r, div(set1(1.0f), load(total + r)));
    store(lse2 + r, add(load(top + r), log2(load(total + r))));
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
