// Attention over one work item for one KV head.
//
//   for every cut of the item's keys                        (absolute multiples of `cut`)
//     for every tile of rows                                (row = token * group + head of the group)
//       scores = q . keys                                   Dots::scores
//       weights = 2^(score - max), 0 where masked           weigh_rows
//       sums = weights . values                             Dots::sums
//       state = (sums / l, max + log2 l)                    folded into the row's state, or stored as the cut's partial
//
// Invariants, which make a row's bits independent of the item it is computed in:
// 1. A cut's state depends on the row's q and the keys it sees, not on other rows: a row has its own chain of
// additions.
// 2. Sums run in key order; lanes and pairs go by absolute key position. Keys outside a row's view have weight 0
// exactly,
//    so whether a tile computes them or skips them changes no bit.
// 3. States meet in one function, merge_state(), in key order, the sink first.
// Masked scores are replaced by selection, never computed with: slots past an item's keys may hold NaN. Values there
// are read from a copy with zeros instead (copy_tail).
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

// What two states, of earlier and of later keys, weigh in their merged one, lane by lane. Neither is empty.
struct Shares {
  F32 into;
  F32 from;
  F32 lse2;  // of the merged state
};
static inline Shares shares_of(F32 into_lse2, F32 from_lse2) {
  const F32 top = max(into_lse2, from_lse2);
  const F32 into = exp2(sub(into_lse2, top));
  const F32 from = exp2(sub(from_lse2, top));
  const F32 total = add(into, from);
  return {div(into, total), div(from, total), add(top, log2(total))};
}

// Merges the state (values, lse2) of later keys into the state of earlier ones; share_into and share_from as shares_of()
// gives them. False: it changed nothing but for values copied, and the merged lse2 is the one of the state that is not empty.
static inline bool merge_values(float* into, float into_lse2, float share_into, const float* from, float from_lse2,
                                float share_from, uint32_t width) {
  if (is_empty(from_lse2)) return false;
  if (is_empty(into_lse2)) {
    for (uint32_t i = 0; i < width; i += kLanes) store(into + i, load(from + i));
    return false;
  }
  for (uint32_t i = 0; i < width; i += kLanes) {
    store(into + i, fma(load(into + i), set1(share_into), mul(load(from + i), set1(share_from))));
  }
  return true;
}

static inline void merge_state(float* into, float& into_lse2, const float* from, float from_lse2, uint32_t width) {
  const Shares shares = shares_of(set1(into_lse2), set1(from_lse2));
  const bool both =
      merge_values(into, into_lse2, first_lane(shares.into), from, from_lse2, first_lane(shares.from), width);
  if (both) {
    into_lse2 = first_lane(shares.lse2);
  } else if (is_empty(into_lse2)) {
    into_lse2 = from_lse2;
  }
}

static inline float sink_lse2(const AttendCall& call, uint32_t head) {
  return call.sinks == nullptr ? -kInfinity : call.sinks[head] * kLog2E;
}

static inline void clear_row(float* values, uint32_t width) {
  for (uint32_t i = 0; i < width; i += kLanes) store(values + i, zero());
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

// Fetches the pages of the next cut into the second-level cache, a few lines at a time between the rows of this one:
// tile loads take a page's lines in an order that the processor does not foresee, and a core that waits for each of
// them reads at half the rate it can.
class PageFetcher {
 public:
  // `pages` pages from page_ids on, one KV head; `rows` calls of fetch_some() will follow.
  PageFetcher(const LayerPages& layer, uint32_t kv_head, const uint32_t* page_ids, uint32_t pages, uint32_t rows)
      : layer_(layer), kv_head_(kv_head), page_ids_(page_ids), pages_left_(pages) {
    const uint64_t lines = pages * layer.head_bytes / kLineBytes;
    lines_per_row_ = least(kLinesPerRowMax, static_cast<uint32_t>((lines + rows - 1) / rows));
    if (pages_left_ > 0) begin_page();
  }

  void fetch_some() {
    for (uint32_t i = 0; i < lines_per_row_ && pages_left_ > 0; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kLineBytes;
      if (at_ == end_ && --pages_left_ > 0) begin_page();
    }
  }

 private:
  static constexpr uint64_t kLineBytes = 64;
  static constexpr uint32_t kLinesPerRowMax =
      24;  // few rows do little else meanwhile: what is cached already would be slower

  void begin_page() {
    at_ = layer_.data + *page_ids_++ * layer_.page_bytes + kv_head_ * layer_.head_bytes;
    end_ = at_ + layer_.head_bytes;
  }

  const LayerPages& layer_;
  const uint32_t kv_head_;
  const uint32_t* page_ids_;
  uint32_t pages_left_;
  uint32_t lines_per_row_;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
};

// A tile's scores, and the weights that they become.
template <typename Elements>
struct TileWeights {
  float* scores;
  uint32_t scores_stride;
  typename Elements::Factor* weights;
  uint32_t weights_stride;
};

// Turns the scores of rows into weights; writes weights for keys [begin, end) of the tile (multiples of 16), 0 outside a
// row's view. lse2 [kRowsTileMax]: -inf where a row sees nothing. share [kRowsTileMax]: what the sums of the other
// rows are to be multiplied by. All rows go through one stage before the next: within a row the stages wait for each other.
template <typename Elements>
static inline void weigh_rows(const TileWeights<Elements>& tile, const View* seen, uint32_t rows, uint32_t begin,
                              uint32_t end, float softcap, PageFetcher& ahead, float* share, float* lse2) {
  float top[kRowsTileMax];
  float total[kRowsTileMax];
  for (uint32_t r = 0; r < kRowsTileMax; ++r) top[r] = -kInfinity, total[r] = 1.0f;
  for (uint32_t r = 0; r < rows; ++r) {
    if (seen[r].begin < seen[r].end) top[r] = mask_row(tile.scores + r * tile.scores_stride, seen[r], softcap);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    ahead.fetch_some();
    auto* weights = tile.weights + r * tile.weights_stride;
    const View whole = whole_vectors(seen[r]);
    for (uint32_t i = begin; i < least(whole.begin, end); i += kLanes) Elements::store_factors(weights + i, zero());
    for (uint32_t i = most(whole.end, begin); i < end; i += kLanes) Elements::store_factors(weights + i, zero());
    if (whole.begin == whole.end) continue;
    const float* scores = tile.scores + r * tile.scores_stride;
    total[r] = Elements::store_weights(weights, scores, whole.begin, whole.end, set1(top[r]));
  }
  for (uint32_t r = 0; r < rows; r += kLanes) {
    store(share + r, div(set1(1.0f), load(total + r)));
    store(lse2 + r, add(load(top + r), log2(load(total + r))));
  }
}

template <typename Dots>
class ItemAttention {
  using Elements = typename Dots::Elements;
  using Stored = typename Elements::Stored;
  using Factor = typename Elements::Factor;

 public:
  ItemAttention(const AttendCall& call, const AttendItem& item, uint32_t kv_head, AttendScratch& scratch)
      : call_(call), item_(item), kv_head_(kv_head), scratch_(scratch) {}

  void run() {
    const uint32_t tokens_end = item_.token_begin + item_.token_count;
    for (token_ = item_.token_begin; token_ < tokens_end; token_ += kTokensBlock) {
      rows_ = least(kTokensBlock, tokens_end - token_) * call_.group;
      const uint32_t tiles = (rows_ + Dots::kRows - 1) / Dots::kRows;
      tile_rows_ = (rows_ + tiles - 1) / tiles;
      [[maybe_unused]] const typename Dots::Session session(tile_rows_);
      begin_rows();
      const uint32_t end = item_.key_begin + item_.key_count;
      uint32_t index = 0;
      for (uint32_t key = item_.key_begin; key < end; ++index) {
        const uint32_t count = least(call_.cut - key % call_.cut, end - key);
        attend_cut(key, count, index);
        key += count;
      }
      if (item_.fold) end_rows();
    }
  }

 private:
  uint32_t token_of(uint32_t row) const { return token_ + row / call_.group; }  // plan position
  uint32_t head_of(uint32_t row) const { return kv_head_ * call_.group + row % call_.group; }
  uint64_t batch_row(uint32_t row) const { return call_.token_order[token_of(row)]; }
  float* out_of(uint32_t row) const {
    return call_.out + batch_row(row) * call_.out_stride + uint64_t{head_of(row)} * call_.pages.value_width;
  }
  uint64_t partial_of(uint32_t row, uint32_t cut_index) const {
    const uint64_t slot =
        uint64_t{item_.partial_begin} + uint64_t{cut_index} * item_.token_count + (token_of(row) - item_.token_begin);
    return slot * call_.q_heads + head_of(row);
  }
  float* state_of(uint32_t row) const {  // of a folding item
    return item_.direct ? out_of(row) : call_.partial_values + partial_of(row, 0) * call_.pages.value_width;
  }

  void begin_rows() {
    const uint32_t width = call_.pages.key_width;
    auto* factors = static_cast<Factor*>(scratch_.q);
    const F32 scale = set1(call_.score_scale);
    for (uint32_t row = 0; row < rows_; ++row) {
      const float* q = call_.q + batch_row(row) * call_.q_stride + uint64_t{head_of(row)} * width;
      for (uint32_t i = 0; i < width; i += kLanes) {
        Elements::store_factors(factors + uint64_t{row} * width + i, mul(load(q + i), scale));
      }
      if (!item_.fold) continue;
      clear_row(state_of(row), call_.pages.value_width);
      scratch_.fold_lse2[row] = sink_lse2(call_, head_of(row));
    }
  }

  void end_rows() {
    for (uint32_t row = 0; row < rows_; ++row) {
      const float lse2 = scratch_.fold_lse2[row];
      if (!item_.direct) {
        call_.partial_lse2[partial_of(row, 0)] = lse2;
      } else if (call_.lse2 != nullptr) {
        call_.lse2[batch_row(row) * call_.q_heads + head_of(row)] = lse2;
      }
    }
  }

  void attend_cut(uint32_t key_begin, uint32_t key_count, uint32_t cut_index) {
    const Stored* keys[kCutMax / 16];
    const Stored* values[kCutMax / 16];
    find_pages(key_begin, key_count, keys, values);
    CutPages<Stored> pages{keys, values, call_.pages.page_size, 0, 0};

    const uint32_t page_size = call_.pages.page_size;
    const uint32_t next_begin = key_begin + key_count;
    const uint32_t next_keys = least(call_.cut, item_.key_begin + item_.key_count - next_begin);
    PageFetcher ahead(call_.pages, kv_head_,
                      call_.page_ids + item_.page_begin + (next_begin - item_.key_begin) / page_size,
                      (next_keys + page_size - 1) / page_size, rows_);
    for (uint32_t row = 0; row < rows_; row += tile_rows_) {
      attend_tile(pages, row, least(tile_rows_, rows_ - row), key_begin, key_count, cut_index, ahead);
    }
  }

  void find_pages(uint32_t key_begin, uint32_t key_count, const Stored** keys, const Stored** values) {
    const LayerPages& layer = call_.pages;
    const uint32_t page_first = item_.page_begin + (key_begin - item_.key_begin) / layer.page_size;
    const uint32_t pages = (key_count + layer.page_size - 1) / layer.page_size;
    for (uint32_t i = 0; i < pages; ++i) {
      const std::byte* block =
          layer.data + call_.page_ids[page_first + i] * layer.page_bytes + kv_head_ * layer.head_bytes;
      keys[i] = reinterpret_cast<const Stored*>(block);
      values[i] = keys[i] + uint64_t{layer.page_size} * layer.key_width;
    }
    if (key_count % layer.page_size != 0) values[pages - 1] = copy_tail(values[pages - 1], key_count % layer.page_size);
#if !defined(NDEBUG)
    if (token_ == item_.token_begin) {
      scratch_.kv_bytes_read += uint64_t{key_count} * (layer.key_width + layer.value_width) * sizeof(Stored);
    }
#endif
  }

  // The first `count` values of a page, then zeros up to a multiple of 16.
  const Stored* copy_tail(const Stored* values, uint32_t count) {
    const uint32_t width = call_.pages.value_width;
    auto* copy = static_cast<Stored*>(scratch_.tail);
    const uint32_t whole = round_down(count, Elements::kStep) * width;
    __builtin_memcpy(copy, values, whole * sizeof(Stored));
    __builtin_memset(copy + whole, 0, (round_up(count, 16) * width - whole) * sizeof(Stored));
    for (uint32_t i = 0; i < count % Elements::kStep * width; ++i) copy[whole + 2 * i] = values[whole + 2 * i];
    return copy;
  }

  void attend_tile(CutPages<Stored>& pages, uint32_t row_begin, uint32_t rows, uint32_t key_begin, uint32_t key_count,
                   uint32_t cut_index, PageFetcher& ahead) {
    View seen[kRowsTileMax];
    uint32_t begin = key_count;
    uint32_t end = 0;
    for (uint32_t r = 0; r < rows; ++r) {
      seen[r] = view(call_.token_position[token_of(row_begin + r)], call_.window, key_begin, key_count);
      if (seen[r].begin == seen[r].end) continue;
      begin = least(begin, seen[r].begin);
      end = most(end, seen[r].end);
    }
    begin = least(begin, end);
    pages.begin = begin - begin % pages.page_size % Dots::kKeyAlignment;
    pages.end = round_up(end, 16);

    const uint32_t key_width = call_.pages.key_width;
    const uint32_t value_width = call_.pages.value_width;
    const uint32_t weights_stride = call_.cut;
    const uint32_t scores_stride = call_.cut + kRowsTileMax;
    auto* weights = static_cast<Factor*>(scratch_.weights);
    float lse2[kRowsTileMax];
    float share[kRowsTileMax];
    if (begin < end) {
      const auto* factors = static_cast<const Factor*>(scratch_.q) + uint64_t{row_begin} * key_width;
      Dots::scores(pages, key_width, factors, rows, scratch_.scores, scores_stride);
    }
    weigh_rows<Elements>({scratch_.scores, scores_stride, weights, weights_stride}, seen, rows, pages.begin, pages.end,
                         call_.softcap, ahead, share, lse2);
    if (begin < end) Dots::sums(pages, value_width, weights, weights_stride, rows, scratch_.sums);
    for (uint32_t r = 0; r < rows; ++r) scale_sums(scratch_.sums + r * value_width, share[r], is_empty(lse2[r]));
    if (item_.fold) {
      fold(row_begin, rows, lse2);
    } else {
      for (uint32_t r = 0; r < rows; ++r)
        store_partial(row_begin + r, cut_index, scratch_.sums + r * value_width, lse2[r]);
    }
  }

  void scale_sums(float* sums, float share, bool empty) {
    for (uint32_t i = 0; i < call_.pages.value_width; i += kLanes) {
      store(sums + i, empty ? zero() : mul(load(sums + i), set1(share)));
    }
  }

  // Merges the states of a tile into those of the rows.
  void fold(uint32_t row_begin, uint32_t rows, const float* lse2) {
    const uint32_t width = call_.pages.value_width;
    float* into_lse2 = scratch_.fold_lse2 + row_begin;
    float into[kRowsTileMax], from[kRowsTileMax], merged[kRowsTileMax];
    for (uint32_t r = 0; r < rows; r += kLanes) {
      const Shares shares = shares_of(load(into_lse2 + r), load(lse2 + r));
      store(into + r, shares.into);
      store(from + r, shares.from);
      store(merged + r, shares.lse2);
    }
    for (uint32_t r = 0; r < rows; ++r) {
      const bool both = merge_values(state_of(row_begin + r), into_lse2[r], into[r], scratch_.sums + r * width, lse2[r],
                                     from[r], width);
      if (both) {
        into_lse2[r] = merged[r];
      } else if (is_empty(into_lse2[r])) {
        into_lse2[r] = lse2[r];
      }
    }
  }

  void store_partial(uint32_t row, uint32_t cut_index, const float* sums, float lse2) {
    const uint32_t width = call_.pages.value_width;
    const uint64_t partial = partial_of(row, cut_index);
    float* values = call_.partial_values + partial * width;
    for (uint32_t i = 0; i < width; i += kLanes) store(values + i, load(sums + i));
    call_.partial_lse2[partial] = lse2;
  }

  const AttendCall& call_;
  const AttendItem& item_;
  const uint32_t kv_head_;
  AttendScratch& scratch_;
  uint32_t token_ = 0;  // first token of the block, plan position
  uint32_t rows_ = 0;   // of the block
  uint32_t tile_rows_ = 0;
};

static inline void merge_token(const AttendCall& call, uint32_t token) {
  const uint32_t begin = call.merge_indptr[token];
  const uint32_t end = call.merge_indptr[token + 1];
  if (begin == end && call.token_empty[token] == 0) return;  // written by a direct item
  const uint32_t width = call.pages.value_width;
  const uint64_t batch_row = call.token_order[token];
  for (uint32_t head = 0; head < call.q_heads; ++head) {
    float* out = call.out + batch_row * call.out_stride + uint64_t{head} * width;
    float lse2 = begin == end ? sink_lse2(call, head) : -kInfinity;  // the first partial counts the sink
    clear_row(out, width);
    for (uint32_t i = begin; i < end; ++i) {
      const uint64_t partial = uint64_t{call.merge_slots[i]} * call.q_heads + head;
      merge_state(out, lse2, call.partial_values + partial * width, call.partial_lse2[partial], width);
    }
    if (call.lse2 != nullptr) call.lse2[batch_row * call.q_heads + head] = lse2;
  }
}

template <template <typename> class Bf16Dots = VectorDots>
static inline void attend_item(const AttendCall& call, const AttendItem& item, uint32_t kv_head,
                               AttendScratch& scratch) {
  switch (call.pages.element) {
    case KvElement::kF32:
      return ItemAttention<VectorDots<F32Elements>>(call, item, kv_head, scratch).run();
    case KvElement::kF16:
      return ItemAttention<VectorDots<F16Elements>>(call, item, kv_head, scratch).run();
    case KvElement::kBF16:
      return ItemAttention<Bf16Dots<Bf16Elements>>(call, item, kv_head, scratch).run();
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
