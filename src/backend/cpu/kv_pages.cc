#include "backend/cpu/kv_pages.h"

#include <cstring>

namespace headwater::backend::cpu {
namespace {

Status check_width(const char* what, uint32_t width) {
  if (width > 0 && width <= kHeadDimMax && width % 16 == 0) return {};
  return error(ErrorCode::kUnsupported, "{} width {}: the cpu back end takes multiples of 16 up to {}", what, width,
               kHeadDimMax);
}

}  // namespace

Result<std::unique_ptr<ops::KvPool>> CpuKvPool::create(const ops::KvShape& shape) {
  if (shape.page_size == 0 || shape.page_size % kPageSizeMultiple != 0 || shape.page_size > kPageSizeMax) {
    return error(ErrorCode::kUnsupported, "page size {}: the cpu back end takes multiples of {} up to {}",
                 shape.page_size, kPageSizeMultiple, kPageSizeMax);
  }
  if (shape.kv_heads == 0) return error(ErrorCode::kInvalidArgument, "a KV pool needs at least one KV head, not 0");
  HEADWATER_RETURN_IF_ERROR(check_width("key", shape.head_dim));
  HEADWATER_RETURN_IF_ERROR(check_width("value", shape.v_head_dim));
  if (block_elements(shape.dtype) != 1) {
    return error(ErrorCode::kUnsupported, "KV type {}: the cpu back end takes f32, f16, bf16 and f8",
                 to_string(shape.dtype));
  }
  HEADWATER_ASSIGN_OR_RETURN(Buffer memory, Buffer::create(shape.bytes()));
  return std::unique_ptr<ops::KvPool>(new CpuKvPool(shape, std::move(memory)));
}

CpuKvPool::CpuKvPool(const ops::KvShape& shape, Buffer memory)
    : KvPool(shape),
      head_bytes_(shape.bytes_token_layer() * shape.page_size / shape.kv_heads),
      memory_(std::move(memory)) {}

void CpuKvPool::copy_pages(std::span<const PageId> from, std::span<const PageId> to) {
  check(from.size() == to.size(), "every copied page needs a destination");
  for (uint32_t layer = 0; layer < shape().layers; ++layer) {
    for (size_t i = 0; i < from.size(); ++i) std::memcpy(page(layer, to[i]), page(layer, from[i]), page_bytes());
  }
}

}  // namespace headwater::backend::cpu
