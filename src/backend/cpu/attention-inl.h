// Attention over one work item for one KV head.
//
//   for every cut of the item's keys                        (absolute multiples of `cut`)
//     for some tiles of rows, each stage for all of them    (row = token * group + head of the group)
//       scores = q . keys                                   Dots::scores
//       weights = 2^(score - max), 0 where masked           weigh_rows; 8-bit pages: scores times the keys' scales
//                                                           before, weights times the values' scales after
//       sums = weights . values                             Dots::sums
//       state = (sums / l, max + log2 l)                    folded into the row's state, or stored as the cut's partial
//
// Keys and values of a cut do not fit the first-level cache together; stage by stage, the tiles after the first find
// theirs there.
//
// Invariants, which make a row's bits independent of the item it is computed in:
// 1. A cut's state depends on the row's q and the keys it sees, not on other rows: a row has its own chain of
// additions.
// 2. Sums run in key order; lanes and pairs go by absolute key position. Keys outside a row's view have weight 0
// exactly,
//    so whether a tile computes them or skips them changes no bit.
// 3. States meet in shares_of() and merge_values() alone, in key order, the sink first.
// Masked scores are replaced by selection, never computed with: slots past an item's keys may hold NaN. Values there
// are read from a copy with zeros instead (copy_tail). Of 8-bit pages only scales can be NaN: those of the values there
// are copied as zeros.
#pragma once

#include "backend/cpu/f8_pages-inl.h"
#include "backend/cpu/softmax-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static inline float sink_lse2(const AttendCall& call, uint32_t head) {
  return call.sinks == nullptr ? -kInfinity : call.sinks[head] * kLog2E;
}

static inline void clear_row(float* values, uint32_t width) {
  for (uint32_t i = 0; i < width; i += kLanes) store(values + i, zero());
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

  // A cut's keys: those of the item from key_begin on. Its pages as they are multiplied; of 8-bit pages, `keys` and `values`
  // point into the scratch and are set as parts of the cut are widened.
  struct Cut {
    uint32_t key_begin;
    uint32_t key_count;
    uint32_t index;
    uint32_t pages;
    const std::byte* blocks[kCutMax / 16];
    const Stored* keys[kCutMax / 16];
    const Stored* values[kCutMax / 16];
  };

  void attend_cut(uint32_t key_begin, uint32_t key_count, uint32_t cut_index) {
    Cut cut;
    cut.key_begin = key_begin;
    cut.key_count = key_count;
    cut.index = cut_index;
    find_pages(cut);
    Tile tiles[kTilesTogether];
    for (uint32_t row = 0; row < rows_;) {
      uint32_t count = 0;
      for (; count < kTilesTogether && row < rows_; ++count, row += tile_rows_) begin_tile(tiles[count], cut, row);
      score(cut, tiles, count);
      for (uint32_t i = 0; i < count; ++i) weigh(tiles[i], i);
      sum(cut, tiles, count);
      for (uint32_t i = 0; i < count; ++i) end_tile(tiles[i], i, cut.index);
    }
  }

  void find_pages(Cut& cut) {
    const LayerPages& layer = call_.pages;
    const uint32_t page_first = item_.page_begin + (cut.key_begin - item_.key_begin) / layer.page_size;
    cut.pages = (cut.key_count + layer.page_size - 1) / layer.page_size;
    for (uint32_t i = 0; i < cut.pages; ++i) {
      cut.blocks[i] = layer.data + call_.page_ids[page_first + i] * layer.page_bytes + kv_head_ * layer.head_bytes;
      if constexpr (Elements::kScaled) {
        const auto* scales = reinterpret_cast<const float*>(cut.blocks[i] + f8_scales_offset(layer));
        copy_scales(scales, keys_of_page(cut, i), key_scales() + i * layer.page_size);
        copy_scales(scales + layer.page_size, keys_of_page(cut, i), value_scales() + i * layer.page_size);
      } else {
        cut.keys[i] = reinterpret_cast<const Stored*>(cut.blocks[i]);
        cut.values[i] = cut.keys[i] + uint64_t{layer.page_size} * layer.key_width;
      }
    }
    const uint32_t tail = cut.key_count % layer.page_size;
    if (!Elements::kScaled && tail != 0) cut.values[cut.pages - 1] = copy_tail(cut.values[cut.pages - 1], tail);
#if !defined(NDEBUG)
    if (token_ == item_.token_begin) scratch_.kv_bytes_read += cut.key_count * (layer.head_bytes / layer.page_size);
#endif
  }

  float* key_scales() const {
    return scratch_.scales;
  }
  float* value_scales() const {
    return scratch_.scales + kCutMax;
  }
  uint32_t keys_of_page(const Cut& cut, uint32_t page) const {
    return least(call_.pages.page_size, cut.key_count - page * call_.pages.page_size);
  }

  // The first `count` values of a page, then zeros up to a multiple of 16.
  const Stored* copy_tail(const Stored* values, uint32_t count) {
    const uint32_t page_size = call_.pages.page_size;
    auto* tail = static_cast<Stored*>(scratch_.tail);
    const uint32_t whole = round_down(count, Elements::kStep) * kColumnsTogether;
    for (uint32_t column = 0; column < call_.pages.value_width; column += kColumnsTogether) {
      const uint64_t begin = uint64_t{column} * page_size;
      const Stored* from = values + begin;
      Stored* to = tail + begin;
      __builtin_memcpy(to, from, whole * sizeof(Stored));
      __builtin_memset(to + whole, 0, (round_up(count, 16) * kColumnsTogether - whole) * sizeof(Stored));
      for (uint32_t i = 0; i < count % Elements::kStep * kColumnsTogether; ++i) to[whole + 2 * i] = from[whole + 2 * i];
    }
    return tail;
  }

  // Rows of the item that are attended together, and the keys of the cut that they see.
  struct Tile {
    uint32_t row_begin;
    uint32_t rows;
    View seen[kRowsTileMax];
    CutPages<Stored> pages;  // from the first key that a row sees to the last
    float share[kRowsTileMax];
    float lse2[kRowsTileMax];
  };

  // The part of the scratch that belongs to tile number `index` of those attended together.
  TileWeights<Elements> weights_of(uint32_t index) {
    const uint32_t scores_stride = call_.cut + kRowsTileMax;
    return {scratch_.scores + uint64_t{index} * kRowsTileMax * scores_stride, scores_stride,
            static_cast<Factor*>(scratch_.weights) + uint64_t{index} * kRowsTileMax * call_.cut, call_.cut,
            value_scales()};
  }

  void begin_tile(Tile& tile, const Cut& cut, uint32_t row_begin) {
    tile.row_begin = row_begin;
    tile.rows = least(tile_rows_, rows_ - row_begin);
    uint32_t begin = cut.key_count;
    uint32_t end = 0;
    for (uint32_t r = 0; r < tile.rows; ++r) {
      View& seen = tile.seen[r];
      seen = view(call_.token_position[token_of(row_begin + r)], call_.window, cut.key_begin, cut.key_count);
      if (seen.begin == seen.end) continue;
      begin = least(begin, seen.begin);
      end = most(end, seen.end);
    }
    begin = least(begin, end);
    tile.pages = {cut.keys, cut.values, call_.pages.page_size, 0, 0};
    tile.pages.begin = begin - begin % call_.pages.page_size % Dots::kKeyAlignment;
    tile.pages.end = round_up(end, 16);
  }

  void score(Cut& cut, const Tile* tiles, uint32_t count) {
    if constexpr (Elements::kScaled) {
      const LayerPages& layer = call_.pages;
      const uint32_t together = most(1, kWideKeys / layer.page_size);
      for (uint32_t page = 0; page < cut.pages; page += together) {
        const uint32_t pages_end = least(page + together, cut.pages);
        for (uint32_t i = page; i < pages_end; ++i) {
          Stored* to = scratch_.wide + uint64_t{i - page} * layer.page_size * layer.key_width;
          widen_keys(layer, cut.blocks[i], round_up(keys_of_page(cut, i), 16), to, after_keys(cut, i));
          cut.keys[i] = to;
        }
        for (uint32_t i = 0; i < count; ++i) {
          score(tiles[i], i, page * layer.page_size, pages_end * layer.page_size);
        }
      }
    } else {
      for (uint32_t i = 0; i < count; ++i) score(tiles[i], i, 0, call_.cut);
    }
  }

  static constexpr uint32_t kPagesAhead = 2;
  // What is fetched while the keys of a page are widened: keys of a later page, in the end the first values.
  const std::byte* after_keys(const Cut& cut, uint32_t page) const {
    const uint32_t ahead = page + kPagesAhead;
    if (ahead < cut.pages) return cut.blocks[ahead];
    return cut.blocks[least(ahead - cut.pages, cut.pages - 1)] +
           uint64_t{call_.pages.page_size} * call_.pages.key_width;
  }

  // Keys [begin, end), as far as the tile sees them.
  void score(const Tile& tile, uint32_t index, uint32_t begin, uint32_t end) {
    CutPages<Stored> pages = tile.pages;
    pages.begin = most(pages.begin, begin);
    pages.end = least(pages.end, end);
    if (pages.begin >= pages.end) return;
    const uint32_t width = call_.pages.key_width;
    const auto* factors = static_cast<const Factor*>(scratch_.q) + uint64_t{tile.row_begin} * width;
    const TileWeights<Elements> to = weights_of(index);
    Dots::scores(pages, width, factors, tile.rows, to.scores, to.scores_stride);
  }

  void weigh(Tile& tile, uint32_t index) {
    if constexpr (Elements::kScaled) {
      const TileWeights<Elements> to = weights_of(index);
      for (uint32_t r = 0; r < tile.rows; ++r) {
        float* scores = to.scores + uint64_t{r} * to.scores_stride;
        for (uint32_t i = tile.pages.begin; i < tile.pages.end; i += kLanes) {
          store(scores + i, mul(load(scores + i), load(key_scales() + i)));
        }
      }
    }
    weigh_rows<Elements>(weights_of(index), tile.seen, tile.rows, tile.pages.begin, tile.pages.end, call_.softcap,
                         tile.share, tile.lse2);
  }

  void sum(Cut& cut, const Tile* tiles, uint32_t count) {
    const uint32_t width = call_.pages.value_width;
    if constexpr (Elements::kScaled) {
      const LayerPages& layer = call_.pages;
      for (uint32_t column = 0; column < width; column += kWideColumns) {
        const uint32_t columns = least(kWideColumns, width - column);
        for (uint32_t i = 0; i < cut.pages; ++i) {
          Stored* to = scratch_.wide + uint64_t{i} * layer.page_size * columns;
          widen_values(layer, cut.blocks[i], column, columns, round_up(keys_of_page(cut, i), 16), to,
                       cut.blocks[least(i + kPagesAhead, cut.pages - 1)]);
          cut.values[i] = to;
        }
        for (uint32_t i = 0; i < count; ++i) sum(tiles[i], i, column, columns);
      }
    } else {
      for (uint32_t i = 0; i < count; ++i) sum(tiles[i], i, 0, width);
    }
  }

  void sum(const Tile& tile, uint32_t index, uint32_t column, uint32_t columns) {
    if (tile.pages.begin == tile.pages.end) return;
    const TileWeights<Elements> from = weights_of(index);
    Dots::sums(tile.pages, columns, from.weights, from.weights_stride, tile.rows, sums_of(index) + column,
               call_.pages.value_width);
  }

  float* sums_of(uint32_t index) const {
    return scratch_.sums + uint64_t{index} * kRowsTileMax * call_.pages.value_width;
  }

  void end_tile(const Tile& tile, uint32_t index, uint32_t cut_index) {
    const uint32_t width = call_.pages.value_width;
    float* sums = sums_of(index);
    for (uint32_t r = 0; r < tile.rows; ++r) scale_sums(sums + r * width, tile.share[r], is_empty(tile.lse2[r]));
    if (item_.fold) {
      fold(tile.row_begin, tile.rows, tile.lse2, sums);
    } else {
      for (uint32_t r = 0; r < tile.rows; ++r) {
        store_partial(tile.row_begin + r, cut_index, sums + r * width, tile.lse2[r]);
      }
    }
  }

  void scale_sums(float* sums, float share, bool empty) {
    for (uint32_t i = 0; i < call_.pages.value_width; i += kLanes) {
      store(sums + i, empty ? zero() : mul(load(sums + i), set1(share)));
    }
  }

  // Merges the states of a tile into those of the rows.
  void fold(uint32_t row_begin, uint32_t rows, const float* lse2, const float* sums) {
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
      into_lse2[r] = merge_values(state_of(row_begin + r), into_lse2[r], sums + r * width, lse2[r],
                                  {into[r], from[r], merged[r]}, width);
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
    case KvElement::kF8:
      return ItemAttention<Bf16Dots<F8Elements>>(call, item, kv_head, scratch).run();
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
