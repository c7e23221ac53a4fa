// How the copy engine of Hopper sees a tensor in global memory.
#pragma once

#include <cuda.h>

#include <span>

#include "core/core.h"

namespace headwater::backend::cuda {

// Elements of 16 bits; dimensions from the one whose elements are neighbours on. Copies are boxes whose rows are 128 bytes,
// swizzled; what lies outside is zeros.
struct TensorView {
  CUtensorMapDataType type;
  const void* base;  // multiple of 16 bytes
  std::span<const cuuint64_t> sizes;
  std::span<const cuuint64_t> strides;  // of all dimensions but the first: bytes, multiples of 16
  std::span<const cuuint32_t> box;
};

// kUnsupported: the driver is too old, or refuses; its code is in the message.
Result<CUtensorMap> create_tensor_map(const TensorView& view);

}  // namespace headwater::backend::cuda
