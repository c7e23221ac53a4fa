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

// Maps of BF16, boxes of kPairColumns columns.
struct BatchCall {
  CUtensorMap x;                      // [tokens, pairs * kPairColumns], batch_rows() rows a box
  CUtensorMap weights[kFewProducts];  // kDense: [rows, pairs * kPairColumns], a group a box
  FewCall product;                    // tokens: 1 to kBatchTokens; tiles_end: multiples of kGroupTiles
  uint32_t splits = 1;                // blocks that share rows of the weights; set by the launch
};
cudaError_t launch_batch(Coding coding, const BatchCall& call, cudaStream_t stream);

}  // namespace headwater::backend::cuda
