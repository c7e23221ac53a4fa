// KV pages on the device: keys and values apart, each [layer][page][kv_head][slot][head_dim] in the pool's dtype; for F8_E4M3
// a scale a token and KV head beside them, [layer][page][kv_head][slot] in float.
#pragma once

#include <memory>

#include "backend/cuda/attention/call.h"
#include "backend/cuda/attention/launch.h"
#include "backend/cuda/runtime.h"
#include "ops/kv_pool.h"

namespace headwater::backend::cuda {

Result<KvElement> element_of(DType dtype);  // kInvalidArgument for other types

Status check_page(uint32_t page_size, uint32_t head_dim);  // kInvalidArgument, kUnsupported: what pages cannot be

// Pages as the attend kernels read them, wherever they come from: addresses, strides, and on Hopper the maps of the copy
// engine over all layers.
struct KvPages {
  KvElement element;
  uint32_t layers, pages, kv_heads, head_dim, page_size;
  KvView view;            // of layer 0
  uint64_t layer_stride;  // elements
  uint64_t scale_layer_stride;
  uint32_t chunk = 0;  // keys a copy; 0: no maps
  CUtensorMap k_map{}, v_map{};

  uint32_t element_bytes() const;
  KvView layer(uint32_t index) const;
  // Sets the maps. kUnsupported when the driver refuses the strides or addresses (multiples of 16 bytes).
  Status map_for_copies();
};

class CudaKvPool final : public ops::KvPool {
 public:
  // kUnsupported for widths of keys and values that differ; kInvalidArgument for page sizes that are no multiples of 16;
  // kExhausted when the device's memory does not suffice.
  static Result<std::unique_ptr<ops::KvPool>> create(const ops::KvShape& shape, bool has_copy_engine);

  const KvPages& pages() const { return pages_; }
  Status copy_page(PageId from, PageId to, cudaStream_t stream) const;

 private:
  explicit CudaKvPool(const ops::KvShape& shape) : KvPool(shape) {}

  DeviceBuffer keys_, values_, k_scales_, v_scales_;
  KvPages pages_{};
};

}  // namespace headwater::backend::cuda
