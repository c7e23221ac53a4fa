// Where a row's likeliest tokens end: every filter keeps the first tokens of one order, by larger logit and then by lower
// id, and this is the search for the last that it keeps.
#pragma once

#include "backend/cuda/sampling/row.cuh"

namespace headwater::backend::cuda::sampling {

// Sums by range of keys, in shared memory.
class Ranges {
 public:
  static constexpr uint32_t kBits = 11, kCount = 1u << kBits;
  static constexpr uint32_t kPerThread = kCount / kThreads;

  __device__ void clear() {
    for (uint32_t i = threadIdx.x; i < kCount; i += kThreads) low_[i] = high_[i] = 0;
  }
  // Halves, for shared memory adds 32 bits in one instruction, and 64 in a loop.
  __device__ void add(uint32_t range, uint64_t amount) {
    const uint32_t low = static_cast<uint32_t>(amount);
    const uint32_t before = atomicAdd(&low_[range], low);
    const uint32_t high = static_cast<uint32_t>(amount >> 32) + (before + low < low ? 1 : 0);
    if (high != 0) atomicAdd(&high_[range], high);
  }
  __device__ uint64_t operator[](uint32_t range) const { return uint64_t{high_[range]} << 32 | low_[range]; }

 private:
  uint32_t low_[kCount], high_[kCount];
};

// What a thread adds to a range in a row is added at once: where many logits are equal, all want the same range.
class RangeAdder {
 public:
  __device__ explicit RangeAdder(Ranges& ranges) : ranges_(ranges) {}
  __device__ void add(uint32_t range, uint64_t amount) {
    if (range != range_) flush();
    range_ = range;
    amount_ += amount;
  }
  __device__ void flush() {
    if (amount_ != 0) ranges_.add(range_, amount_);
    amount_ = 0;
  }

 private:
  Ranges& ranges_;
  uint32_t range_ = 0;
  uint64_t amount_ = 0;
};

struct CutMemory {
  Ranges ranges;
  uint64_t of_warps[kWarps];
  struct {
    uint32_t range;
    uint64_t before, at;
  } found;
};

struct Cut {
  uint32_t key;    // of the last token
  uint64_t above;  // amount of all larger keys
  uint64_t at;     // amount of this key; all bits set where nobody counted
};

// Finds in `memory.ranges` where the running sum reaches `need`, or else takes range `last`; into memory.found.
__device__ inline void find_range(CutMemory& memory, uint32_t last, uint64_t need) {
  const uint32_t first = threadIdx.x * Ranges::kPerThread;
  uint64_t own = 0;
  for (uint32_t i = 0; i < Ranges::kPerThread; ++i) own += memory.ranges[first + i];
  uint64_t reached = warp_scan(own);
  const uint32_t warp = threadIdx.x / kLanes;
  if (threadIdx.x % kLanes == kLanes - 1) memory.of_warps[warp] = reached;
  __syncthreads();
  for (uint32_t i = 0; i < warp; ++i) reached += memory.of_warps[i];
  uint64_t before = reached - own;
  if (before < need && reached >= need) {  // true of one thread at most
    uint32_t range = first;
    while (before + memory.ranges[range] < need) before += memory.ranges[range++];
    memory.found = {range, before, memory.ranges[range]};
  } else if (threadIdx.x == kThreads - 1 && reached < need) {
    memory.found = {last, reached - memory.ranges[last], memory.ranges[last]};
  }
  __syncthreads();
}

// The largest key in [low, high] that, with the larger ones, has amounts of `need` or more; else low. `each` adds what this
// thread has, by calls of its argument (key, function that gives the amount). By all threads.
//
// Ranges of keys, 2,048 at a time, narrow [low, high] down to one.
template <typename Each>
__device__ Cut find_cut(CutMemory& memory, uint32_t low, uint32_t high, uint64_t need, const Each& each) {
  need = max(need, uint64_t{1});
  Cut cut{low, 0, ~uint64_t{0}};
  while (low < high) {
    const uint32_t width = 32 - __clz(high - low);
    const uint32_t shift = width > Ranges::kBits ? width - Ranges::kBits : 0;
    memory.ranges.clear();
    __syncthreads();
    RangeAdder adder(memory.ranges);
    each([&](uint32_t key, const auto& amount) {
      const uint32_t below = high - key;
      if (below <= high - low) adder.add(below >> shift, amount());
    });
    adder.flush();
    __syncthreads();
    const uint32_t last = (high - low) >> shift;
    find_range(memory, last, need - cut.above);
    const auto [range, before, at] = memory.found;
    cut.above += before;
    cut.at = at;
    high -= range << shift;
    if (range < last) low = high - ((1u << shift) - 1);
  }
  cut.key = high;
  return cut;
}

}  // namespace headwater::backend::cuda::sampling
