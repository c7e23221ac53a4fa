// Quantised products on AMX tiles: sixteen, or eight, rows of activations by sixteen features.
//
// For every block of 32 columns
//
//   decode     bytes of the weight, signed, in the order of a B tile (packed_weight.h has it), and its scales as floats:
//              once a group, with the first rows; the others read what is then in the worker's scratch
//   multiply   A (rows of q x 32 columns, one PanelBlock) x B (8 x 16 features x 4)  ->  C, int32 [rows][16 features]
//   add        sums += ..., the float steps of quantized_tile
//
// and the loop works on another block in each stage: decoding, tile instructions and float steps keep different parts of
// the core busy. Integers are exact and the float steps are the same in the same order, so a row has the same bits here as
// in quantized_tile, which takes what is left of fewer than kRowsOnTiles rows.
#pragma once

#include "backend/cpu/products-inl.h"
#include "backend/cpu/tiles-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static constexpr uint32_t kRowsOnTiles = 5;  // fewer cost less as vectors
static constexpr uint32_t kTileBytes = 8 * 64;

// Blocks between the stages: what one writes has reached the cache before the next reads it.
static constexpr uint32_t kDecodedAhead = 3;
static constexpr uint32_t kAddedBehind = 2;
static constexpr uint32_t kDots = 4;
static_assert(kAddedBehind < kDots);

static_assert(kPanelRows == 16 && kGroupFeatures == 16 && kBlockColumns == 32);

// Tiles: C, A and B for sixteen rows; C and A for eight.
struct ByteTiles {
  static constexpr Tiles::Config kConfig = {.row_bytes = {64, 32, 64, 64, 32}, .rows = {16, 16, 8, 8, 8}};

  template <uint32_t kRows>
  static inline __attribute__((always_inline)) void multiply(const int8_t* a, const int8_t* b, int32_t* c) {
    see_memory();
    _tile_loadd(2, b, 64);
    if constexpr (kRows == 16) {
      _tile_zero(0);
      _tile_loadd(1, a, kBlockColumns);
      _tile_dpbssd(0, 1, 2);
      _tile_stored(0, c, 64);
    } else {
      _tile_zero(3);
      _tile_loadd(4, a, kBlockColumns);
      _tile_dpbssd(3, 4, 2);
      _tile_stored(3, c, 64);
    }
  }
};

template <typename Format>
static inline __attribute__((always_inline)) void decode_block(const GroupParts<Format>& parts, uint32_t b,
                                                               ProductScratch out) {
  const uint16_t* scales = parts.scales + b * Format::kScales * kGroupFeatures;
  const uint8_t* bytes = parts.bytes + b * Format::kVectors * 64;
  HEADWATER_UNROLL
  for (uint32_t j = 0; j < kWords; ++j) {
    Bytes weight = Format::load(bytes, j);
    if constexpr (!Format::kNibbles) weight = _mm512_xor_si512(weight, _mm512_set1_epi8(-128));
    _mm512_store_si512(out.values + b * kTileBytes + 64 * j, weight);
  }
  const F32 d = load_f16(scales);
  store(out.scales + b * 2 * kGroupFeatures, d);
  if constexpr (Format::kOffset) store(out.scales + (b * 2 + 1) * kGroupFeatures, Format::offset(scales, d));
}

// The float steps of one block for the rows of a tile. dots: [kRows][16].
template <uint32_t kRows, bool kOffset>
static inline __attribute__((always_inline)) void add_block(const int32_t* dots, const float* scales,
                                                            const float* scale, const float* sum, F32* sums) {
  const F32 d = load(scales);
  const F32 m = kOffset ? load(scales + kGroupFeatures) : zero();
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) {
    const F32 dot = to_f32(_mm512_load_si512(dots + r * kGroupFeatures));
    sums[r] = fma(dot, mul(d, set1(scale[r])), sums[r]);
    if constexpr (kOffset) sums[r] = fma(m, set1(sum[r]), sums[r]);
  }
}

// Rows [place.row, + rows) of a panel's first kRows against one group. kDecode: the group is decoded on the way, and the
// lines of the next one are fetched.
template <typename Format, uint32_t kRows, bool kDecode>
static void multiply_rows(const ProductTask& task, const uint8_t* group, Place place, uint32_t rows) {
  alignas(64) int32_t dots[kDots][kRows * kGroupFeatures];
  const uint32_t blocks = task.columns / kBlockColumns;
  const GroupParts<Format> parts(group, blocks);
  const uint64_t block_bytes = task.group_bytes / blocks;
  const PanelBlock* x = task.panels + uint64_t{place.row / kPanelRows} * blocks;
  const ProductScratch& weight = task.scratch;
  F32 sums[kRows];
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) sums[r] = zero();
  const auto add = [&](uint32_t b) __attribute__((always_inline)) {
    add_block<kRows, Format::kOffset>(dots[b % kDots], weight.scales + b * 2 * kGroupFeatures, x[b].scale, x[b].sum,
                                      sums);
  };
  if constexpr (kDecode) {
    for (uint32_t b = 0; b < kDecodedAhead && b < blocks; ++b) decode_block(parts, b, weight);
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    if constexpr (kDecode) {
      if (b + kDecodedAhead < blocks) decode_block(parts, b + kDecodedAhead, weight);
      const uint8_t* ahead = group + task.group_bytes + b * block_bytes;
      for (uint64_t i = 0; i < block_bytes; i += 64) __builtin_prefetch(ahead + i, 0, 2);
    }
    ByteTiles::multiply<kRows>(x[b].q[0], weight.values + b * kTileBytes, dots[b % kDots]);
    if (b >= kAddedBehind) add(b - kAddedBehind);
  }
  for (uint32_t b = blocks < kAddedBehind ? 0 : blocks - kAddedBehind; b < blocks; ++b) add(b);
  store_tile<kRows>(task, place, sums, rows);
}

template <typename Format, bool kDecode>
static inline void multiply_panel(const ProductTask& task, const uint8_t* group, Place place) {
  const uint32_t left = task.rows - place.row;
  if (left <= 8) return multiply_rows<Format, 8, kDecode>(task, group, place, left);
  multiply_rows<Format, kPanelRows, kDecode>(task, group, place, left < kPanelRows ? left : kPanelRows);
}

template <typename Format>
static void tiled_products(const ProductTask& task) {
  const uint32_t rest = task.rows % kPanelRows;
  const uint32_t rows_on_vectors = rest < kRowsOnTiles ? rest : 0;
  const uint32_t rows_on_tiles = task.rows - rows_on_vectors;
  if (rows_on_tiles == 0) return quantized_products<Format>(task);
  const Tiles tiles(ByteTiles::kConfig);
  const uint8_t* group = task.weight;
  for (uint32_t feature = 0; feature < task.features; feature += kGroupFeatures, group += task.group_bytes) {
    multiply_panel<Format, true>(task, group, {0, feature});
    for (uint32_t row = kPanelRows; row < rows_on_tiles; row += kPanelRows) {
      multiply_panel<Format, false>(task, group, {row, feature});
    }
    if (rows_on_vectors > 0) {
      quantized_tiles<Format>()[rows_on_vectors - 1](task, group, {rows_on_tiles, feature});
    }
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
