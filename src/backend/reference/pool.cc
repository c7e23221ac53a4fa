#include "backend/reference/pool.h"

#include <cstring>

namespace headwater::backend::reference {

Result<std::unique_ptr<Pool>> Pool::create(const ops::KvShape& shape) {
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim == 0 || shape.v_head_dim == 0 ||
      shape.page_size == 0) {
    return error(ErrorCode::kInvalidArgument,
                 "a KV pool of {} layers, {} heads, widths {} and {}, {} tokens a page; every one must be at least 1",
                 shape.layers, shape.kv_heads, shape.head_dim, shape.v_head_dim, shape.page_size);
  }
  if (block_elements(shape.dtype) != 1) {
    return error(ErrorCode::kInvalidArgument, "KV pages of {}; use F32, F16, BF16 or F8_E4M3", to_string(shape.dtype));
  }
  const uint64_t rows = uint64_t{shape.layers} * shape.pages * shape.kv_heads * shape.page_size;
  HEADWATER_ASSIGN_OR_RETURN(Buffer keys, Buffer::create(rows * shape.bytes_row(shape.head_dim)));
  HEADWATER_ASSIGN_OR_RETURN(Buffer values, Buffer::create(rows * shape.bytes_row(shape.v_head_dim)));
  return std::unique_ptr<Pool>(new Pool(shape, std::move(keys), std::move(values)));
}

uint64_t Pool::offset(uint32_t width, const Place& place) const {
  const ops::KvShape& s = shape();
  check(place.layer < s.layers && place.page < s.pages && place.kv_head < s.kv_heads && place.slot < s.page_size,
        "a KV slot outside the pool");
  const uint64_t head = (uint64_t{place.layer} * s.pages + place.page) * s.kv_heads + place.kv_head;
  return (head * s.page_size + place.slot) * s.bytes_row(width);
}

void Pool::store(const Buffer& half, uint32_t width, const Place& place, const float* row) {
  std::byte* to = half.data() + offset(width, place);
  const DType dtype = shape().dtype;
  if (dtype == DType::kF32) {
    std::memcpy(to, row, width * sizeof(float));
    return;
  }
  if (dtype == DType::kF8E4M3) {
    const float scale = ops::f8_row_scale({row, width}), inverse = 1 / scale;
    for (uint32_t d = 0; d < width; ++d) to[d] = std::byte{f32_to_f8_e4m3(row[d] * inverse)};
    std::memcpy(to + width, &scale, sizeof scale);
    return;
  }
  for (uint32_t d = 0; d < width; ++d) {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(row[d]) : f32_to_bf16(row[d]);
    std::memcpy(to + d * sizeof bits, &bits, sizeof bits);
  }
}

void Pool::load(const Buffer& half, uint32_t width, const Place& place, uint32_t slots, float* out) const {
  check(place.slot + slots <= shape().page_size, "KV slots beyond their page");
  const std::byte* from = half.data() + offset(width, place);
  if (shape().dtype != DType::kF8E4M3) return dequantize_row(shape().dtype, from, uint64_t{slots} * width, out);
  for (uint32_t slot = 0; slot < slots; ++slot, from += shape().bytes_row(width), out += width) {
    float scale;
    std::memcpy(&scale, from + width, sizeof scale);
    dequantize_row(DType::kF8E4M3, from, width, out);
    for (uint32_t d = 0; d < width; ++d) out[d] *= scale;
  }
}

void Pool::copy_page(PageId from, PageId to) {
  for (uint32_t layer = 0; layer < shape().layers; ++layer) {
    const Place source{layer, from, 0, 0}, target{layer, to, 0, 0};
    const uint64_t rows = uint64_t{shape().kv_heads} * shape().page_size;
    for (const auto& [half, width] : {std::pair{&keys_, shape().head_dim}, std::pair{&values_, shape().v_head_dim}}) {
      std::memmove(half->data() + offset(width, target), half->data() + offset(width, source),
                   rows * shape().bytes_row(width));
    }
  }
}

}  // namespace headwater::backend::reference
