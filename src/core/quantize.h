// Floats into the element types that Headwater writes: F32, F16, BF16, Q8_0, Q4_0, Q4_1.
//
// Blocks are those of the Python package `gguf` bit for bit (gguf/quants.py: round to nearest, one pass):
//   Q8_0  d = max|x| / 127               q = round(x / d), halves away from zero
//   Q4_0  d = x of largest |x| / -8      q = floor(x / d + 8.5), at most 15
//   Q4_1  d = (max - min) / 15, m = min  q = floor((x - m) / d + 0.5), at most 15
// where x / d is x * (1 / d) with the unrounded d, all in f32, and d and m are stored as f16.
#pragma once

#include <span>

#include "core/dtype.h"
#include "core/result.h"

namespace headwater {

// out: row_bytes(dtype, values.size()); values.size() is a multiple of block_elements(dtype). kUnsupported for another
// type; kInvalidArgument names the first value that is not finite, or whose block's scale is beyond f16's 65504.
Status quantize_row(DType dtype, std::span<const float> values, std::byte* out);

}  // namespace headwater
