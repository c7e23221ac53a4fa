// Weights on the device. Every one has its values as a dense matrix, for products of many rows and for embeddings: BF16 (exact
// for BF16, rounded for all other types but F32) or F32. Q8_0, Q4_0 and Q4_1 are kept as they are beside it, packed for
// the products of few rows and of a batch (few.h, batch.h), which are bound by the bytes they read. So such a weight takes 2 bytes an element and its own.
#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/products/coding.h"
#include "backend/cuda/runtime.h"
#include "ops/backend.h"

namespace headwater::backend::cuda {

class CudaWeight final : public ops::Weight {
 public:
  using Weight::Weight;

  void* dense = nullptr;        // [rows, columns_padded]
  bool is_short = true;         // BF16; else F32
  uint32_t columns_padded = 0;  // of the dense matrix: the columns in whole pairs of blocks
  Coding coding = Coding::kNone;
  std::byte* packed = nullptr;  // or null

  uint32_t pairs() const { return columns_padded / kPairColumns; }
};

// Device memory for what stays until the end, handed out from few large pieces, one behind the other: weights that are prepared in
// a row mostly lie in a row, so that products that read the same x can be one.
class Arena {
 public:
  Result<std::byte*> take(uint64_t bytes);  // zeroed, aligned to 256 bytes

 private:
  struct Piece {
    DeviceBuffer memory;
    uint64_t used;
  };
  std::vector<Piece> pieces_;
};

struct WeightMemory {
  Arena dense, packed;
};

// Copies, expands and packs. kUnsupported, kInvalidArgument as ops::Backend::prepare().
Result<std::unique_ptr<CudaWeight>> prepare_weight(const ops::WeightView& view, WeightMemory& memory,
                                                   const Stream& stream);

}  // namespace headwater::backend::cuda
