// KV pages in the plainest layout: keys and values apart, each [layer][page][kv_head][slot][width] in the pool's dtype;
// of 8-bit pages every row of `width` elements is followed by its scale.
#pragma once

#include <memory>

#include "ops/kv_pool.h"

namespace headwater::backend::reference {

class Pool final : public ops::KvPool {
 public:
  // kInvalidArgument when a dimension is 0 or the dtype is not a plain one; kExhausted when memory is refused.
  static Result<std::unique_ptr<Pool>> create(const ops::KvShape& shape);

  struct Place {
    uint32_t layer;
    PageId page;
    uint32_t kv_head;
    uint32_t slot;  // first slot
  };
  void store_key(const Place& place, const float* key) { store(keys_, shape().head_dim, place, key); }
  void store_value(const Place& place, const float* value) { store(values_, shape().v_head_dim, place, value); }
  // out: [slots][width]
  void load_keys(const Place& place, uint32_t slots, float* out) const {
    load(keys_, shape().head_dim, place, slots, out);
  }
  void load_values(const Place& place, uint32_t slots, float* out) const {
    load(values_, shape().v_head_dim, place, slots, out);
  }
  void copy_page(PageId from, PageId to);

 private:
  Pool(const ops::KvShape& shape, Buffer keys, Buffer values)
      : KvPool(shape), keys_(std::move(keys)), values_(std::move(values)) {}
  uint64_t offset(uint32_t width, const Place& place) const;  // bytes
  void store(const Buffer& half, uint32_t width, const Place& place, const float* row);
  void load(const Buffer& half, uint32_t width, const Place& place, uint32_t slots, float* out) const;

  Buffer keys_;
  Buffer values_;
};

}  // namespace headwater::backend::reference
