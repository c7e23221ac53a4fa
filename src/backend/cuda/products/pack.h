// Weights of a file, already on the device, made into what the products read.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/products/coding.h"
#include "core/dtype.h"

namespace headwater::backend::cuda {

struct UnpackCall {
  const std::byte* raw;  // [rows, columns] as the file holds them
  DType dtype;
  uint64_t rows, columns;
  void* dense;  // BF16 [rows, columns_padded]
  uint32_t columns_padded;
  std::byte* packed;  // of types that have a coding of their own; else null
};
// Only for types of can_unpack().
cudaError_t launch_unpack(const UnpackCall& call, cudaStream_t stream);
bool can_unpack(DType dtype);  // BF16, F16, Q8_0, Q4_0, Q4_1: others are decoded on the host

}  // namespace headwater::backend::cuda
