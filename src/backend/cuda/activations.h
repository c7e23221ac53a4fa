// Activations of ops as the kernels see them.
#pragma once

#include "backend/cuda/step/step.h"
#include "ops/backend.h"

namespace headwater::backend::cuda {

inline Rows rows_of(const ops::Matrix& matrix) {
  return {matrix.data, matrix.stride, matrix.dtype == DType::kBF16};
}
inline Extent extent_of(const ops::Matrix& matrix) {
  return {matrix.rows, matrix.columns};
}

}  // namespace headwater::backend::cuda
