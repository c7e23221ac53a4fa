// How weights lie on the device.
#pragma once

#include <cstdint>

namespace headwater::backend::cuda {

// Dense matrices and packed ones are padded with zeros to whole tiles of rows and whole blocks of columns.
inline constexpr uint32_t kTileRows = 16, kBlockColumns = 32;
constexpr uint64_t tiles_of(uint64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}
constexpr uint64_t blocks_of(uint64_t columns) {
  return (columns + kBlockColumns - 1) / kBlockColumns;
}

// How the product of few rows (few.h) reads a weight. Packed: [tiles, blocks, 32 lanes] of 16 bytes (kQ8) or 8, and [tiles,
// blocks, 8] pairs of f16 scales, of rows r and r + 8; kQ4Min: [tiles, blocks, scales and minima, 8].
enum class Coding : uint8_t {
  kNone,   // F32: it does not
  kDense,  // BF16 from the dense matrix
  kQ8,     // 8-bit integers times a scale a block
  kQ4,     // 4-bit integers, less 8, times a scale
  kQ4Min,  // 4-bit integers times a scale, plus a minimum
};

}  // namespace headwater::backend::cuda
