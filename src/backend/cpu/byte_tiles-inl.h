// Quantised products on AMX tiles: sixteen rows of activations by sixteen features.
//
// A group of the weight is decoded once for all rows: its bytes, signed, in the order of a B tile (packed_weight.h has
// it), and its scales as floats. Then, for every block of 32 columns,
//
//   A  16 rows of q x 32 columns     one PanelBlock
//   B  8 x (16 features x 4)         one decoded block
//   C  = A x B                       int32 [16 rows][16 features], stored to memory
//   sums += ...                      the float steps of quantized_tile, on the C of the block before: the tile
//                                    instructions of one block overlap with the vector instructions of another
//
// Integers are exact and the float steps are the same in the same order, so a row has the same bits here as in
// quantized_tile, which takes what is left of fewer than kRowsOnTiles rows.
#pragma once

#include "backend/cpu/products-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static constexpr uint32_t kRowsOnTiles = 5;  // fewer cost less as vectors
static constexpr uint32_t kTileBytes = 8 * 64;
static_assert(kPanelRows == 16 && kGroupFeatures == 16 && kBlockColumns == 32);

// The configuration of this thread's tiles: 0 is C, 1 is A, 2 is B.
class ByteTiles {
 public:
  ByteTiles() {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 32, 64};
      uint8_t rows[16] = {16, 16, 8};
    } config;
    // GCC 12 declares only a part of what the instruction reads.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~ByteTiles() { _tile_release(); }
  ByteTiles(const ByteTiles&) = delete;
  ByteTiles& operator=(const ByteTiles&) = delete;

  static inline __attribute__((always_inline)) void multiply(const int8_t* a, const int8_t* b, int32_t* c) {
    _tile_zero(0);
    _tile_loadd(1, a, kBlockColumns);
    _tile_loadd(2, b, 64);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, c, 64);
  }
};

template <typename Format>
static void decode_group(const uint8_t* group, uint32_t blocks, ProductScratch out) {
  const GroupParts<Format> parts(group, blocks);
  const uint16_t* scales = parts.scales;
  const uint8_t* bytes = parts.bytes;
  for (uint32_t b = 0; b < blocks; ++b, scales += Format::kScales * kGroupFeatures, bytes += Format::kVectors * 64) {
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
}

// The float steps of one block for sixteen rows. dots: [16][16].
template <bool kOffset>
static inline __attribute__((always_inline)) void add_block(const int32_t* dots, const float* scales,
                                                            const PanelBlock& x, F32* sums) {
  const F32 d = load(scales);
  const F32 m = kOffset ? load(scales + kGroupFeatures) : zero();
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kPanelRows; ++r) {
    const F32 dot = to_f32(_mm512_load_si512(dots + r * kGroupFeatures));
    sums[r] = fma(dot, mul(d, set1(x.scale[r])), sums[r]);
    if constexpr (kOffset) sums[r] = fma(m, set1(x.sum[r]), sums[r]);
  }
}

// `ahead`: what the next group will read, fetched meanwhile, `ahead_bytes` of it a block.
template <bool kOffset>
static void multiply_panel(const ProductTask& task, Place place, uint32_t rows, const uint8_t* ahead,
                           uint64_t ahead_bytes) {
  alignas(64) int32_t dots[2][kPanelRows * kGroupFeatures];
  const uint32_t blocks = task.columns / kBlockColumns;
  const PanelBlock* x = task.panels + uint64_t{place.row / kPanelRows} * blocks;
  const ProductScratch& weight = task.scratch;
  F32 sums[kPanelRows];
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kPanelRows; ++r) sums[r] = zero();
  ByteTiles::multiply(x[0].q[0], weight.values, dots[0]);
  for (uint32_t b = 1; b < blocks; ++b) {
    ByteTiles::multiply(x[b].q[0], weight.values + b * kTileBytes, dots[b & 1]);
    for (uint64_t i = 0; i < ahead_bytes; i += 64) __builtin_prefetch(ahead + b * ahead_bytes + i, 0, 2);
    add_block<kOffset>(dots[(b - 1) & 1], weight.scales + (b - 1) * 2 * kGroupFeatures, x[b - 1], sums);
  }
  const uint32_t last = blocks - 1;
  add_block<kOffset>(dots[last & 1], weight.scales + last * 2 * kGroupFeatures, x[last], sums);
  store_tile<kPanelRows>(task, place, sums, rows);
}

template <typename Format>
static void tiled_products(const ProductTask& task) {
  const uint32_t rest = task.rows % kPanelRows;
  const uint32_t rows_on_vectors = rest < kRowsOnTiles ? rest : 0;
  const uint32_t rows_on_tiles = task.rows - rows_on_vectors;
  if (rows_on_tiles == 0) return quantized_products<Format>(task);
  const ByteTiles tiles;
  const uint32_t blocks = task.columns / kBlockColumns;
  const uint64_t ahead_bytes = (task.group_bytes / blocks + 63) / 64 * 64;
  const uint8_t* group = task.weight;
  for (uint32_t feature = 0; feature < task.features; feature += kGroupFeatures, group += task.group_bytes) {
    decode_group<Format>(group, blocks, task.scratch);
    for (uint32_t row = 0; row < rows_on_tiles; row += kPanelRows) {
      const uint32_t rows = task.rows - row < kPanelRows ? task.rows - row : kPanelRows;
      multiply_panel<Format::kOffset>(task, {row, feature}, rows, group + task.group_bytes, row == 0 ? ahead_bytes : 0);
    }
    if (rows_on_vectors > 0) {
      quantized_tiles<Format>()[rows_on_vectors - 1](task, group, {rows_on_tiles, feature});
    }
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
