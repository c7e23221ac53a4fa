// Products of few rows, bound by reading the weight: it is read once, as it is stored, and decoded in registers.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/products/coding.h"
#include "backend/cuda/step/step.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kFewTokens = 16;   // at most
inline constexpr uint32_t kFewProducts = 4;  // of one launch
// Bytes of shared memory that a block may take: two fit on Hopper, and something small beside them. Devices of compute
// capability 8.6, 8.9 and 12.0 have less; they do without this product.
inline constexpr uint32_t kFewSharedBytes = 106 << 10;

struct FewWeight {
  const void* data;   // packed; kDense, kNone: the dense matrix
  const float* bias;  // of the product; or null
};

// out = x * transpose(weight) + bias for weights of one coding and width that read the same x.
struct FewCall {
  struct Part {
    FewWeight weight;
    Rows out;
    uint32_t rows;       // of the weight
    uint32_t tiles_end;  // of this part and those before it
  };
  Part parts[kFewProducts];
  uint32_t parts_count;
  Rows x;           // BF16, [tokens, pairs * kPairColumns], rows aligned to 16 bytes
  uint32_t tokens;  // 1 to kFewTokens; of a batch (batch.h) to kBatchTokens
  uint32_t pairs;   // of blocks of columns

#ifdef __CUDACC__
  __host__ __device__ uint32_t tiles() const {
    return parts[parts_count - 1].tiles_end;
  }  // of all parts
  struct PartTile {
    uint32_t part, tile;  // of the part
  };
  __device__ PartTile part_of(uint32_t tile) const {
    uint32_t index = 0;
    while (tile >= parts[index].tiles_end) ++index;
    return {index, tile - (index == 0 ? 0 : parts[index - 1].tiles_end)};
  }
#endif
};
cudaError_t launch_few(Coding coding, const FewCall& call, cudaStream_t stream);

}  // namespace headwater::backend::cuda
