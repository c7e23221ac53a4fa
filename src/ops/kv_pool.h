// The bytes of KV pages, owned by a back end. Only ids cross this door: the inner layout of a page belongs to the back end
// and the element type.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "core/core.h"

namespace headwater::ops {

// 8-bit pages (kF8E4M3) keep one f32 scale for every token, KV head and half (key, value): a function of that row x
// alone, not of the page, of what the page held before or of how it was filled. On every back end, to the bit, in f32
// with each operation rounded to nearest even:
//
//   greatest  = max |x[i]|; the scale is NaN when any x[i] is NaN or infinite
//   scale     = max(greatest / 448, 2^-126), so that scale and 1 / scale are normal numbers
//   stored    = f32_to_f8_e4m3(x[i] * (1 / scale)): one division a row, one multiplication an element
//   read back = f8_e4m3_to_f32(stored) * scale: a row of zeros is zeros, a row with NaN or infinity is all NaN
inline float f8_row_scale(std::span<const float> row) {
  float greatest = 0;
  bool is_finite = true;
  for (const float x : row) {
    is_finite = is_finite && std::isfinite(x);
    greatest = std::fabs(x) > greatest ? std::fabs(x) : greatest;
  }
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  const float scale = greatest / kF8E4M3Max;
  return scale > std::numeric_limits<float>::min() ? scale : std::numeric_limits<float>::min();
}

struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;    // of keys
  uint32_t v_head_dim = 0;  // of values; may differ
  uint32_t page_size = 32;  // tokens
  uint32_t pages = 0;
  DType dtype = DType::kBF16;  // kF32, kF16, kBF16 or kF8E4M3

  // Bytes of one token's row of `width` elements, its scale included.
  uint64_t bytes_row(uint32_t width) const {
    return row_bytes(dtype, width) + (dtype == DType::kF8E4M3 ? sizeof(float) : 0);
  }
  uint64_t bytes_token_layer() const {  // keys and values of one token in one layer
    return kv_heads * (bytes_row(head_dim) + bytes_row(v_head_dim));
  }
  uint64_t bytes_page() const { return bytes_token_layer() * layers * page_size; }
  uint64_t bytes() const { return bytes_page() * pages; }
};

// Memory of `pages` pages for all layers. Created and used by one back end; freed with it or before it.
class KvPool {
 public:
  explicit KvPool(const KvShape& shape) : shape_(shape) {}
  virtual ~KvPool() = default;
  const KvShape& shape() const { return shape_; }

 private:
  KvShape shape_;
};

}  // namespace headwater::ops
