#include "backend/cuda/kv_pool.h"

#include "backend/cuda/attention/policy.h"
#include "backend/cuda/tensor_map.h"

namespace headwater::backend::cuda {
namespace {

Result<CUtensorMap> map_of(const KvPages& pages, const void* base) {
  const uint64_t bytes = pages.element_bytes();
  const cuuint64_t sizes[] = {pages.head_dim, pages.page_size, pages.kv_heads, pages.pages, pages.layers};
  const cuuint64_t strides[] = {pages.view.slot_stride * bytes, pages.view.head_stride * bytes,
                                pages.view.page_stride * bytes, pages.layer_stride * bytes};
  const cuuint32_t box[] = {64, pages.chunk, 1, 1, 1};
  const CUtensorMapDataType type =
      pages.element == KvElement::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return create_tensor_map({type, base, sizes, strides, box});
}

}  // namespace

Result<KvElement> element_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return KvElement::kF32;
    case DType::kF16:
      return KvElement::kF16;
    case DType::kBF16:
      return KvElement::kBF16;
    case DType::kF8E4M3:
      return KvElement::kF8;
    default:
      return error(ErrorCode::kInvalidArgument, "KV pages of {}; use BF16, F16, F32 or F8_E4M3", to_string(dtype));
  }
}

Status check_page(uint32_t page_size, uint32_t head_dim) {
  if (page_size == 0 || page_size % 16 != 0) {
    return error(ErrorCode::kInvalidArgument, "pages of {} tokens on a GPU; use a multiple of 16", page_size);
  }
  if (head_dim == 0 || head_dim % 4 != 0 || head_dim > 256) {
    return error(ErrorCode::kUnsupported, "heads of width {} on a GPU; use a multiple of 4 up to 256", head_dim);
  }
  return {};
}

uint32_t KvPages::element_bytes() const {
  return element == KvElement::kF32 ? 4 : element == KvElement::kF8 ? 1 : 2;
}

KvView KvPages::layer(uint32_t index) const {
  KvView of = view;
  const uint64_t offset = index * layer_stride * element_bytes();
  of.k = static_cast<const std::byte*>(of.k) + offset;
  of.v = static_cast<const std::byte*>(of.v) + offset;
  if (of.k_scales != nullptr) {
    of.k_scales += index * scale_layer_stride;
    of.v_scales += index * scale_layer_stride;
  }
  return of;
}

Status KvPages::map_for_copies() {
  chunk = chunk_keys(page_size, attend_policy(head_dim).tile_keys);
  HEADWATER_ASSIGN_OR_RETURN(k_map, map_of(*this, view.k));
  HEADWATER_ASSIGN_OR_RETURN(v_map, map_of(*this, view.v));
  return {};
}

Result<std::unique_ptr<ops::KvPool>> CudaKvPool::create(const ops::KvShape& shape, bool has_copy_engine) {
  if (shape.head_dim != shape.v_head_dim) {
    return error(ErrorCode::kUnsupported, "keys of width {} and values of width {} on a GPU; they must be equal",
                 shape.head_dim, shape.v_head_dim);
  }
  HEADWATER_RETURN_IF_ERROR(check_page(shape.page_size, shape.head_dim));
  HEADWATER_ASSIGN_OR_RETURN(const KvElement element, element_of(shape.dtype));
  std::unique_ptr<CudaKvPool> pool(new CudaKvPool(shape));
  KvPages& p = pool->pages_;
  p.element = element;
  p.layers = shape.layers;
  p.pages = shape.pages;
  p.kv_heads = shape.kv_heads;
  p.head_dim = shape.head_dim;
  p.page_size = shape.page_size;
  p.view.slot_stride = shape.head_dim;
  p.view.head_stride = uint64_t{shape.page_size} * shape.head_dim;
  p.view.page_stride = p.view.head_stride * shape.kv_heads;
  p.layer_stride = p.view.page_stride * shape.pages;
  const uint64_t bytes = p.layer_stride * shape.layers * p.element_bytes();
  HEADWATER_ASSIGN_OR_RETURN(pool->keys_, DeviceBuffer::create(bytes));
  HEADWATER_ASSIGN_OR_RETURN(pool->values_, DeviceBuffer::create(bytes));
  p.view.k = pool->keys_.data();
  p.view.v = pool->values_.data();
  if (element == KvElement::kF8) {
    p.view.scale_head_stride = shape.page_size;
    p.view.scale_page_stride = uint64_t{shape.page_size} * shape.kv_heads;
    p.scale_layer_stride = p.view.scale_page_stride * shape.pages;
    const uint64_t scale_bytes = p.scale_layer_stride * shape.layers * sizeof(float);
    HEADWATER_ASSIGN_OR_RETURN(pool->k_scales_, DeviceBuffer::create(scale_bytes));
    HEADWATER_ASSIGN_OR_RETURN(pool->v_scales_, DeviceBuffer::create(scale_bytes));
    p.view.k_scales = pool->k_scales_.as<float>();
    p.view.v_scales = pool->v_scales_.as<float>();
  }
  const bool is_mapped =
      has_copy_engine && (element == KvElement::kBF16 || element == KvElement::kF16) && shape.head_dim % 8 == 0;
  if (is_mapped) HEADWATER_RETURN_IF_ERROR(p.map_for_copies());
  return std::unique_ptr<ops::KvPool>(std::move(pool));
}

Status CudaKvPool::copy_page(PageId from, PageId to, cudaStream_t stream) const {
  const auto copy = [&](const DeviceBuffer& buffer, uint64_t layer_stride, uint64_t page_stride,
                        uint64_t size) -> Status {
    if (buffer.size() == 0) return {};
    for (uint64_t layer = 0; layer < pages_.layers; ++layer) {
      const std::byte* source = buffer.data() + (layer * layer_stride + from * page_stride) * size;
      std::byte* target = buffer.data() + (layer * layer_stride + to * page_stride) * size;
      HEADWATER_RETURN_IF_ERROR(checked(
          cudaMemcpyAsync(target, source, page_stride * size, cudaMemcpyDeviceToDevice, stream), "copying a page"));
    }
    return {};
  };
  const KvView& view = pages_.view;
  for (const DeviceBuffer* half : {&keys_, &values_}) {
    HEADWATER_RETURN_IF_ERROR(copy(*half, pages_.layer_stride, view.page_stride, pages_.element_bytes()));
  }
  for (const DeviceBuffer* scales : {&k_scales_, &v_scales_}) {
    HEADWATER_RETURN_IF_ERROR(copy(*scales, pages_.scale_layer_stride, view.scale_page_stride, sizeof(float)));
  }
  return {};
}

}  // namespace headwater::backend::cuda
