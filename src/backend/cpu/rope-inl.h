// RMS norm and rotary embedding (Su et al., arXiv 2104.09864) of one token's q and k, and the append of its k and v to the
// page slot.
#pragma once

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/f8_pages-inl.h"
#include "backend/cpu/kv_elements-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// The elements that [i, i + kLanes) are rotated with.
static inline F32 partners(const float* from, uint32_t i, uint32_t half, bool adjacent) {
  if (!adjacent) return load(from + (i < half ? i + half : i - half));
#if defined(__AVX2__)
  return swap_pairs(load(from + i));
#else
  return load(from + (i ^ 1));
#endif
}

// angles: [2][dims], the cosine of every element and its sine, negative for the first of a pair:
//   x' = x cos - y sin,  y' = y cos + x sin
static inline void rotate(float* values, const float* angles, uint32_t dims, bool adjacent) {
  const uint32_t half = dims / 2;
  const float* sines = angles + dims;
  float from[kHeadDimMax];
  __builtin_memcpy(from, values, dims * sizeof(float));
  const uint32_t whole = half % kLanes == 0 ? dims : 0;
  for (uint32_t i = 0; i < whole; i += kLanes) {
    const F32 turned = mul(partners(from, i, half, adjacent), load(sines + i));
    store(values + i, add(mul(load(from + i), load(angles + i)), turned));
  }
  for (uint32_t i = whole; i < dims; ++i) {
    const uint32_t partner = adjacent ? i ^ 1 : i < half ? i + half : i - half;
    values[i] = from[i] * angles[i] + from[partner] * sines[i];
  }
}

// 1 / sqrt(mean(x^2) + epsilon).
static inline float norm_factor(const float* values, uint32_t width, float epsilon) {
  F32 squares = zero();
  for (uint32_t i = 0; i < width; i += kLanes) squares = fma(load(values + i), load(values + i), squares);
  return 1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(width) + epsilon);
}

// The norm of a token's heads, of one after the other. Without weights there is none.
class HeadNorm {
 public:
  HeadNorm(const RopeAppendCall& call, const float* weight, const float* heads, uint32_t count)
      : weight_(weight), epsilon_(call.norm_epsilon), width_(call.pages.key_width), is_row_(call.row_norms) {
    if (weight_ != nullptr && is_row_) factor_ = norm_factor(heads, count * width_, epsilon_);
  }
  void apply(float* head, uint32_t index) const {
    if (weight_ == nullptr) return;
    const float* weight = is_row_ ? weight_ + uint64_t{index} * width_ : weight_;
    const F32 factor = set1(is_row_ ? factor_ : norm_factor(head, width_, epsilon_));
    for (uint32_t i = 0; i < width_; i += kLanes) store(head + i, mul(mul(load(head + i), factor), load(weight + i)));
  }

 private:
  const float* weight_;
  float epsilon_;
  uint32_t width_;
  bool is_row_;
  float factor_ = 0;
};

// Narrows the key or value of a slot in the pages' elements.
template <typename Elements>
struct PlainRows {
  using Stored = typename Elements::Stored;
  static constexpr uint32_t kStep = Elements::kStep;
  static uint64_t place(uint64_t at) { return at; }
  static void narrow(const float* row, uint32_t width, Stored* to, float* /*scale*/) {
    for (uint32_t i = 0; i < width; i += kLanes) Elements::narrow(to + i, load(row + i));
  }
};
struct F8Rows {
  using Stored = uint8_t;
  static constexpr uint32_t kStep = F8Elements::kStep;
  static uint64_t place(uint64_t at) { return f8_place(at); }
  static void narrow(const float* row, uint32_t width, Stored* to, float* scale) {
    *scale = f8_scale(row, width);
    narrow_f8(to, row, width, *scale);
  }
};

// Writes the key and the value of one token and KV head into their slot of a page's block, as kv_pages.h draws it.
template <typename Rows>
static inline void append_head(const RopeAppendCall& call, uint32_t slot, const float* key, const float* value,
                               std::byte* block) {
  using Stored = typename Rows::Stored;
  constexpr uint32_t kStep = Rows::kStep;
  const uint32_t page_size = call.pages.page_size;
  const uint32_t key_width = call.pages.key_width;
  const uint32_t value_width = call.pages.value_width;
  auto* scales = reinterpret_cast<float*>(block + f8_scales_offset(call.pages));
  Stored narrow[kHeadDimMax];
  Rows::narrow(key, key_width, narrow, scales + slot);
  auto* keys = reinterpret_cast<Stored*>(block);
  for (uint32_t i = 0; i < key_width; ++i) {
    keys[Rows::place(key_offset<kStep>(slot, key_width) + i / kStep * kStep * kColumnsTogether + i % kStep)] =
        narrow[i];
  }
  Stored* values = keys + uint64_t{page_size} * key_width;
  Rows::narrow(value, value_width, narrow, scales + page_size + slot);
  for (uint32_t i = 0; i < value_width; ++i) {
    values[Rows::place(value_offset<kStep>(slot, i, page_size))] = narrow[i];
  }
}

template <typename Rows>
static inline void append_token(const RopeAppendCall& call, uint32_t token) {
  const uint32_t width = call.pages.key_width;
  const float* angles = call.angles + uint64_t{token} * 2 * call.dims;
  const float* k = call.k + token * call.k_stride;
  const HeadNorm norm(call, call.k_norm, k, call.kv_heads);
  for (uint32_t head = 0; head < call.kv_heads; ++head, k += width) {
    float rotated[kHeadDimMax];
    for (uint32_t i = 0; i < width; i += kLanes) store(rotated + i, load(k + i));
    norm.apply(rotated, head);
    rotate(rotated, angles, call.dims, call.adjacent);
    std::byte* block =
        call.pages.data + call.append_pages[token] * call.pages.page_bytes + head * call.pages.head_bytes;
    append_head<Rows>(call, call.append_slots[token], rotated,
                      call.v + token * call.v_stride + uint64_t{head} * call.pages.value_width, block);
  }
}

static inline void rope_append_token(const RopeAppendCall& call, uint32_t token) {
  float* q = call.q + token * call.q_stride;
  const float* angles = call.angles + uint64_t{token} * 2 * call.dims;
  const HeadNorm norm(call, call.q_norm, q, call.q_heads);
  for (uint32_t head = 0; head < call.q_heads; ++head, q += call.pages.key_width) {
    norm.apply(q, head);
    rotate(q, angles, call.dims, call.adjacent);
  }
  if (call.append_pages[token] == kNoPage) return;
  switch (call.pages.element) {
    case KvElement::kF32:
      return append_token<PlainRows<F32Elements>>(call, token);
    case KvElement::kF16:
      return append_token<PlainRows<F16Elements>>(call, token);
    case KvElement::kBF16:
      return append_token<PlainRows<Bf16Elements>>(call, token);
    case KvElement::kF8:
      return append_token<F8Rows>(call, token);
  }
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
