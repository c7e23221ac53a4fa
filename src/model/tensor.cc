#include "model/tensor.h"

namespace headwater::model {

uint64_t Tensor::rows() const {
  uint64_t rows = 1;
  for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

}  // namespace headwater::model
