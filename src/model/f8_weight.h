// Weights of F8_E4M3 in a safetensors folder: eight-bit values with scales in a tensor of their own.
//
// The scales of `x.weight` are `x.weight_scale` (compressed-tensors, FBGEMM) or `x.weight_scale_inv` (DeepSeek); both are
// what a value is multiplied with. By their shape they belong to
//   the tensor        one element, of any shape
//   a row             [rows] or [rows, 1]
//   a block           [ceil(rows / 128), ceil(columns / 128)], blocks of 128 x 128
#pragma once

#include <vector>

#include "model/safetensors.h"

namespace headwater::model {

// [rows, columns] as BF16: bf16(f32(value) * f32(scale)), each step rounded to nearest even. kNotFound: no scales beside
// it; kUnsupported: scales of another shape or type.
Result<std::vector<uint16_t>> f8_weight_as_bf16(const SafetensorsFolder& folder, const Tensor& weight);

}  // namespace headwater::model
