// How weights lie on the device.
#pragma once

#include <cstdint>

namespace headwater::backend::cuda {

// Dense matrices are padded with zeros to whole tiles of rows and whole pairs of blocks of columns, packed ones to whole groups
// of tiles.
inline constexpr uint32_t kTileRows = 16, kGroupTiles = 8, kBlockColumns = 32, kPairColumns = 2 * kBlockColumns;
constexpr uint64_t tiles_of(uint64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}
constexpr uint64_t groups_of(uint64_t rows) {
  return (tiles_of(rows) + kGroupTiles - 1) / kGroupTiles;
}
constexpr uint64_t pairs_of(uint64_t columns) {
  return (columns + kPairColumns - 1) / kPairColumns;
}

// How the products of few rows (few.h) and of a batch (batch.h) read a weight. A lane (g, t), g = lane / 4, t = lane % 4, has what
// a left operand of m16n8k16 or wgmma asks of it: in rows g and g + 8 of a block the columns 2 t, 2 t + 1 of each eight, in this
// order. Packed, [groups, pairs, 8 tiles of the group] of integers and scales of a pair of a tile, one behind the other:
//   kQ8           [2 blocks, 32 lanes] of 4 words: of row g columns 0, 2, 1, 3 and 4, 6, 5, 7 of the lane's; then of row g + 8
//   kQ4, kQ4Min   [32 lanes, 2 blocks] of 2 words, a row each: columns 0, 2, 4, 6, 1, 3, 5, 7 in its nibbles
//   scales        [8 g, 2 blocks] pairs of f16, of rows g and g + 8; kQ4Min: [8 g, scales and minima, 2 blocks]
enum class Coding : uint8_t {
  kNone,   // F32: it does not
  kDense,  // BF16 from the dense matrix
  kQ8,     // 8-bit integers times a scale a block
  kQ4,     // 4-bit integers, less 8, times a scale
  kQ4Min,  // 4-bit integers times a scale, plus a minimum
};

// Bytes of a pair of a tile, packed.
constexpr uint32_t packed_integers_bytes(Coding coding) {
  return kTileRows * kPairColumns / (coding == Coding::kQ8 ? 1 : 2);
}
constexpr uint32_t packed_bytes(Coding coding) {
  return packed_integers_bytes(coding) +
         kTileRows * 2 * (coding == Coding::kQ4Min ? 2 : 1) * uint32_t{sizeof(uint16_t)};
}

}  // namespace headwater::backend::cuda
