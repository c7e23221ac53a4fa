// Memory and inner layout of the CPU's KV pages.
//
// The pool is one mapping, [layer][page][kv head][keys, then values]. A page of a KV head is one contiguous block whose
// keys lie in vector lanes, so that scores need no horizontal sums (P tokens a page, D and E the widths of keys and
// values):
//
//   f32, f16   keys [D][P]          values [P][E]            one element a step
//   bf16       keys [D/2][P][2]     values [P/2][E][2]       two elements a step, as VDPBF16PS and TDPBF16PS take them
//
// P, D and E are multiples of 16: every block of 16 keys lies in one page, and every row of a block starts aligned.
#pragma once

#include <memory>
#include <span>

#include "backend/cpu/attention_kernels.h"
#include "ops/kv_pool.h"

namespace headwater::backend::cpu {

inline constexpr uint32_t kPageSizeMultiple = 16;
inline constexpr uint32_t kPageSizeMax = kCutMax;  // a cut is whole pages

class CpuKvPool : public ops::KvPool {
 public:
  // Zeroed, and mapped only once written. kUnsupported for a shape outside the limits above, kExhausted without memory.
  static Result<std::unique_ptr<ops::KvPool>> create(const ops::KvShape& shape);

  uint64_t head_bytes() const { return head_bytes_; }  // keys and values of one page of one KV head
  uint64_t page_bytes() const { return head_bytes_ * shape().kv_heads; }
  std::byte* page(uint32_t layer, PageId page) const {  // of all KV heads
    return memory_.data() + (uint64_t{layer} * shape().pages + page) * page_bytes();
  }

  // Copies whole pages of all layers, in the order listed; from and to have equal lengths.
  void copy_pages(std::span<const PageId> from, std::span<const PageId> to);

 private:
  CpuKvPool(const ops::KvShape& shape, Buffer memory);

  uint64_t head_bytes_;
  Buffer memory_;
};

}  // namespace headwater::backend::cpu
