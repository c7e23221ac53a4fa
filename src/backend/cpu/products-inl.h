// Products of one task: every group of features against every row, a tile of rows at a time.
//
// A vector of the weight is loaded (and unpacked) once for the rows of a tile, whose dot products advance side by side.
// A row's sum runs over the blocks in order and reads nothing of its neighbours: its bits are the same in every tile.
//   quantised   acc += (d * scale) * dot;  with an offset also acc += m * sum
//   plain       acc[k % 2] += w[k] * x[k];  acc[0] + acc[1]
#pragma once

#include "backend/cpu/bytes-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

#if defined(__AVX512F__)
static constexpr uint32_t kTileRows = 8;  // accumulators + a block's vectors + scales fit 32 registers
#else
static constexpr uint32_t kTileRows = 4;  // 16 registers
#endif
static_assert(kPanelRows % kTileRows == 0);

// Loops over a tile's registers must be unrolled, or these become memory.
#if defined(__clang__)
#define HEADWATER_UNROLL _Pragma("unroll")
#else
#define HEADWATER_UNROLL _Pragma("GCC unroll 16")
#endif

// A format names its layout and decodes its blocks:
//   load(block, j)     the vector of the columns from 4 j: unsigned, below 16 (kNibbles) or q + 128
//   offset(scales, d)  m of the 16 features where x = d * q + m; scales is the block's first one, d its value
struct Q4_0 {  // x = d * (q - 8)
  static constexpr bool kNibbles = true;
  static constexpr bool kOffset = true;
  static constexpr uint32_t kScales = 1;
  static constexpr uint32_t kVectors = 4;
  static inline Bytes load(const uint8_t* block, uint32_t j) {
    return j < 4 ? low_nibbles(load_bytes(block + 64 * j)) : high_nibbles(load_bytes(block + 64 * (j - 4)));
  }
  static inline F32 offset(const uint16_t* /*scales*/, F32 d) { return mul(d, set1(-8.0f)); }
};

struct Q4_1 {
  static constexpr bool kNibbles = true;
  static constexpr bool kOffset = true;
  static constexpr uint32_t kScales = 2;
  static constexpr uint32_t kVectors = 4;
  static inline Bytes load(const uint8_t* block, uint32_t j) { return Q4_0::load(block, j); }
  static inline F32 offset(const uint16_t* scales, F32 /*d*/) { return load_f16(scales + kGroupFeatures); }
};

struct Q8_0 {
  static constexpr bool kNibbles = false;
  static constexpr bool kOffset = false;
  static constexpr uint32_t kScales = 1;
  static constexpr uint32_t kVectors = 8;
  static inline Bytes load(const uint8_t* block, uint32_t j) { return load_bytes(block + 64 * j); }
};

struct Float32 {
  using Value = float;
  static inline F32 load(const float* from) { return HEADWATER_TARGET_NAMESPACE::load(from); }
};
struct Float16 {
  using Value = uint16_t;
  static inline F32 load(const uint16_t* from) { return load_f16(from); }
};
struct BFloat16 {
  using Value = uint16_t;
  static inline F32 load(const uint16_t* from) { return load_bf16(from); }
};

// Where a tile lies: its first row, and its lanes' first feature counted from the task's.
struct Place {
  uint32_t row;
  uint32_t feature;
};

// Writes the first `rows` of a tile's rows.
template <uint32_t kRows>
static inline __attribute__((always_inline)) void store_tile(const ProductTask& task, Place place, const F32* sums,
                                                             uint32_t rows = kRows) {
  const uint32_t left = task.features - place.feature;
  const uint32_t lanes = left < kLanes ? left : kLanes;
  const F32 bias = task.bias == nullptr ? zero() : load_first(task.bias + place.feature, lanes);
  float* out = task.out + place.row * task.out_stride + place.feature;
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kRows; ++r, out += task.out_stride) {
    if (r == rows) break;
    const F32 value = task.bias == nullptr ? sums[r] : add(sums[r], bias);
    if (lanes == kLanes) {
      store(out, value);
    } else {
      store_first(out, value, lanes);
    }
  }
}

// The first tile of a group fetches what lies this far ahead, past the group's end in the next one: without it the
// processor's own prefetching, which stops at every 4 KiB, reaches two thirds of the read rate with one row.
static constexpr uint64_t kPrefetchBytes = 4096;

template <typename Format>
static inline void prefetch(const uint16_t* scales, const uint8_t* bytes) {
  __builtin_prefetch(reinterpret_cast<const uint8_t*>(scales) + kPrefetchBytes);
  HEADWATER_UNROLL
  for (uint32_t j = 0; j < Format::kVectors; ++j) __builtin_prefetch(bytes + kPrefetchBytes + 64 * j);
}

// Where a group of a weight has its scales and its bytes.
template <typename Format>
struct GroupParts {
  const uint16_t* scales;  // [blocks][kScales][16] f16
  const uint8_t* bytes;    // [blocks][kVectors][64]

  GroupParts(const uint8_t* group, uint32_t blocks) : scales(reinterpret_cast<const uint16_t*>(group)) {
    const uint64_t scales_bytes = uint64_t{blocks} * Format::kScales * kGroupFeatures * sizeof(uint16_t);
    bytes = group + (scales_bytes + 63) / 64 * 64;
  }
};

template <typename Format, uint32_t kRows>
static void quantized_tile(const ProductTask& task, const uint8_t* group, Place place) {
  const uint32_t blocks = task.columns / kBlockColumns;
  const uint32_t lane = place.feature % kGroupFeatures;
  const uint32_t row = place.row % kPanelRows;
  const PanelBlock* x = task.panels + uint64_t{place.row / kPanelRows} * blocks;
  const GroupParts<Format> parts(group, blocks);
  const uint16_t* scales = parts.scales + lane;
  const uint8_t* bytes = parts.bytes + lane * 4;
  F32 sums[kRows];
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) sums[r] = zero();
  for (uint32_t b = 0; b < blocks;
       ++b, ++x, scales += Format::kScales * kGroupFeatures, bytes += Format::kVectors * 64) {
    const int8_t(*q)[kBlockColumns] = x->q + row;
    const float* scale = x->scale + row;
    if (place.row == 0) prefetch<Format>(scales, bytes);
    I32 dots[kRows];
    HEADWATER_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) dots[r] = dots_begin<Format::kNibbles>(x->bias[row + r]);
    HEADWATER_UNROLL
    for (uint32_t j = 0; j < kWords; ++j) {
      const Bytes weight = Format::load(bytes, j);
      HEADWATER_UNROLL
      for (uint32_t r = 0; r < kRows; ++r) dots[r] = dots_add<Format::kNibbles>(dots[r], weight, q[r] + 4 * j);
    }
    const F32 d = load_f16(scales);
    F32 m = zero();
    if constexpr (Format::kOffset) m = Format::offset(scales, d);
    HEADWATER_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const F32 dot = to_f32(dots_end<Format::kNibbles>(dots[r]));
      sums[r] = fma(dot, mul(d, set1(scale[r])), sums[r]);
      if constexpr (Format::kOffset) sums[r] = fma(m, set1(x->sum[row + r]), sums[r]);
    }
  }
  store_tile<kRows>(task, place, sums);
}

template <typename Format, uint32_t kRows>
static void plain_tile(const ProductTask& task, const uint8_t* group, Place place) {
  const auto* weight = reinterpret_cast<const typename Format::Value*>(group) + place.feature % kGroupFeatures;
  const float* x = task.x + place.row * task.x_stride;
  F32 even[kRows], odd[kRows];
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) even[r] = odd[r] = zero();
  uint32_t k = 0;
  for (; k + 2 <= task.columns; k += 2, weight += 2 * kGroupFeatures) {
    if (place.row == 0) {
      const auto* ahead = reinterpret_cast<const uint8_t*>(weight) + kPrefetchBytes;
      for (uint32_t i = 0; i < 2 * kGroupFeatures * sizeof(*weight); i += 64) __builtin_prefetch(ahead + i);
    }
    const F32 first = Format::load(weight);
    const F32 second = Format::load(weight + kGroupFeatures);
    HEADWATER_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      even[r] = fma(first, set1(x[r * task.x_stride + k]), even[r]);
      odd[r] = fma(second, set1(x[r * task.x_stride + k + 1]), odd[r]);
    }
  }
  if (k < task.columns) {
    const F32 first = Format::load(weight);
    HEADWATER_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) even[r] = fma(first, set1(x[r * task.x_stride + k]), even[r]);
  }
  HEADWATER_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) even[r] = add(even[r], odd[r]);
  store_tile<kRows>(task, place, even);
}

using Tile = void (*)(const ProductTask& task, const uint8_t* group, Place place);

// tiles[n - 1] takes n rows.
static inline void run_tiles(const ProductTask& task, const Tile* tiles) {
  const uint8_t* group = task.weight;
  for (uint32_t first = 0; first < task.features; first += kGroupFeatures, group += task.group_bytes) {
    for (uint32_t row = 0; row < task.rows; row += kTileRows) {
      const uint32_t rows = task.rows - row < kTileRows ? task.rows - row : kTileRows;
      for (uint32_t lane = 0; lane < kGroupFeatures && first + lane < task.features; lane += kLanes) {
        tiles[rows - 1](task, group, {row, first + lane});
      }
    }
  }
}

template <typename Format>
static inline const Tile* quantized_tiles() {
#if defined(__AVX512F__)
  static constexpr Tile kTiles[kTileRows] = {
      quantized_tile<Format, 1>, quantized_tile<Format, 2>, quantized_tile<Format, 3>, quantized_tile<Format, 4>,
      quantized_tile<Format, 5>, quantized_tile<Format, 6>, quantized_tile<Format, 7>, quantized_tile<Format, 8>};
#else
  static constexpr Tile kTiles[kTileRows] = {quantized_tile<Format, 1>, quantized_tile<Format, 2>,
                                             quantized_tile<Format, 3>, quantized_tile<Format, 4>};
#endif
  return kTiles;
}

template <typename Format>
static void quantized_products(const ProductTask& task) {
  run_tiles(task, quantized_tiles<Format>());
}

template <typename Format>
static void plain_products(const ProductTask& task) {
#if defined(__AVX512F__)
  static constexpr Tile kTiles[kTileRows] = {plain_tile<Format, 1>, plain_tile<Format, 2>, plain_tile<Format, 3>,
                                             plain_tile<Format, 4>, plain_tile<Format, 5>, plain_tile<Format, 6>,
                                             plain_tile<Format, 7>, plain_tile<Format, 8>};
#else
  static constexpr Tile kTiles[kTileRows] = {plain_tile<Format, 1>, plain_tile<Format, 2>, plain_tile<Format, 3>,
                                             plain_tile<Format, 4>};
#endif
  run_tiles(task, kTiles);
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
