// Products of up to 64 rows on Hopper, bound by reading the weight like those of few rows (few.h): it is read once, as it is
// stored.
#pragma once

#include <cuda.h>

#include "backend/cuda/products/few.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kBatchTokens = 64;  // at most

// Rows of x that are copied together: those of the product, and zeros.
constexpr uint32_t batch_rows(uint32_t tokens) {
  return tokens <= 16 ? 16 : tokens <= 32 ? 32 : kBatchTokens;
}

// Of a gated product: rows of gate and of up in a tile, and in a group.
inline constexpr uint32_t kGatedTileRows = kTileRows / 2, kGatedGroupRows = kGroupTiles * kGatedTileRows;

// Maps of BF16, boxes of kPairColumns columns.
struct BatchCall {
  CUtensorMap x;                      // [tokens, pairs * kPairColumns], batch_rows() rows a box
  CUtensorMap weights[kFewProducts];  // kDense: [rows, pairs * kPairColumns], a group a box
  FewCall product;                    // tokens: 1 to kBatchTokens; tiles_end: multiples of kGroupTiles
  uint32_t splits = 1;                // blocks that share rows of the weights; set by the launch
  ops::Activation activation{};       // of a gated product
};
cudaError_t launch_batch(Coding coding, const BatchCall& call, cudaStream_t stream);

// out = activation(gate, up) of BF16 weights: parts 0 and 1 are gate and up, of as many rows each, whose tiles and boxes are of half the
// size; parts_count is 1, out BF16 that of part 0, aligned to 4 bytes. For so many rows that their groups alone fill the device.
cudaError_t launch_gated_batch(const BatchCall& call, cudaStream_t stream);

}  // namespace headwater::backend::cuda
