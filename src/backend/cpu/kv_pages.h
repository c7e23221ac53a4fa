// Memory and inner layout of the CPU's KV pages.
//
// The pool is one mapping, [layer][page][kv head][keys, then values]. A page of a KV head is one contiguous block whose
// keys lie in vector lanes, so that scores need no horizontal sums (P tokens a page, D and E the widths of keys and
// values):
//
//   f32, f16   keys [P/16][D][16]        values [E/16][P][16]        one element a step
//   bf16       keys [P/16][D/2][16][2]   values [E/16][P/2][16][2]   two elements a step, as VDPBF16PS and TDPBF16PS
//                                                                    take them
//   e4m3       keys and values as bf16's with one byte an element, then the scales [P] of the keys and those of the
//              values, f32. Of 64 elements in bf16's order, the first 32 lie in the odd bytes, the others in the even
//              ones: so they are widened to bf16 pages fastest (f8_pages-inl.h)
//
// P, D and E are multiples of 16. Sixteen keys, or sixteen columns of values, are read from begin to end in the order
// that they lie in: an AMX B tile is 1 KiB in one piece, and the processor's prefetching follows.
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
