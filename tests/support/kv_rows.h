// What a KV page gives back of a row that was appended to it.
#pragma once

#include <span>

#include "ops/kv_pool.h"

namespace headwater::testing {

// row: one token's key or value of one KV head, in place. Of 8-bit pages a rounded row may get a scale that is one unit in
// the last place off when it is rounded again.
inline void round_kv_row(DType dtype, std::span<float> row) {
  const float scale = dtype == DType::kF8E4M3 ? ops::f8_row_scale(row) : 1, inverse = 1 / scale;
  for (float& x : row) {
    if (dtype == DType::kF16) x = f16_to_f32(f32_to_f16(x));
    if (dtype == DType::kBF16) x = bf16_to_f32(f32_to_bf16(x));
    if (dtype == DType::kF8E4M3) x = f8_e4m3_to_f32(f32_to_f8_e4m3(x * inverse)) * scale;
  }
}

}  // namespace headwater::testing
