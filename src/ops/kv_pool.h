// The bytes of KV pages, owned by a back end. Only ids cross this door: the inner layout of a page belongs to the back end
// and the element type.
#pragma once

#include <cstdint>

#include "core/core.h"

namespace headwater::ops {

struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;    // of keys
  uint32_t v_head_dim = 0;  // of values; may differ
  uint32_t page_size = 32;  // tokens
  uint32_t pages = 0;
  DType dtype = DType::kBF16;  // kF32, kF16 or kBF16

  uint64_t bytes_token_layer() const {  // keys and values of one token in one layer
    return uint64_t{kv_heads} * (head_dim + v_head_dim) * block_bytes(dtype);
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
