// The blocks of a row that hold a token worth reading again, and sums over what is kept of them. By all threads of one
// block of threads, which alone works on the row.
#pragma once

#include "backend/cuda/sampling/cut.cuh"

namespace headwater::backend::cuda::sampling {

// The first tokens of a row's order: those of larger keys, and of this key those before `end`.
struct Kept {
  uint32_t key;
  uint32_t end;
  __device__ bool holds(uint32_t token_key, uint32_t token) const {
    return token_key > key || (token_key == key && token < end);
  }
};

// A key that `rank` tokens of key `low` or more reach, if there are so many: that of the rank-th largest maximum of a block.
// With fewer blocks than that, low.
__device__ inline uint32_t key_reached_by(uint32_t rank, const Row& row, CutMemory& memory, uint32_t low) {
  if (rank > row.call.blocks) return low;
  const auto each = [&](const auto& add) {
    for (uint32_t block = threadIdx.x; block < row.call.blocks; block += kThreads) {
      add(key_of(row.maxima()[block]), [] { return uint64_t{1}; });
    }
  };
  return find_cut(memory, low, key_of(row.peak()), rank, each).key;
}

class LiveTokens {
 public:
  // Of keys from `low` on. Sums of all blocks become zero; only live ones change after that.
  __device__ LiveTokens(const Row& row, CutMemory& memory, uint32_t low) : row_(row), memory_(memory) {
    __shared__ uint32_t count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (uint32_t block = threadIdx.x; block < row.call.blocks; block += kThreads) {
      row.sums()[block] = 0;
      if (key_of(row.maxima()[block]) >= low) row.live()[atomicAdd(&count, 1u)] = block;
    }
    __syncthreads();
    count_ = count;
  }

  // visit(token, logit) for this thread's part.
  template <typename Visit>
  __device__ void each(const Visit& visit) const {
    for (uint32_t at = threadIdx.x / kBlockThreads; at < count_; at += kGroupBlocks)
      visit_block(row_.live()[at], visit);
  }

  // The cut that `need` of the amounts(logit) makes in [low, peak], and the tokens that it keeps.
  template <typename AmountOf>
  __device__ Kept keep(uint32_t low, uint64_t need, const AmountOf& amount_of) const {
    const Cut cut = find_cut(memory_, low, key_of(row_.peak()), need, [&](const auto& add) {
      each([&](uint32_t, float logit) { add(key_of(logit), [&] { return amount_of(logit); }); });
    });
    const uint64_t amount = max(amount_of(logit_of(cut.key)), uint64_t{1});
    const uint64_t equals = (max(need, uint64_t{1}) - cut.above + amount - 1) / amount;
    if (equals * amount >= cut.at) return {cut.key, row_.call.vocabulary};
    const auto is_equal = [&](uint32_t, float logit) { return uint64_t{key_of(logit) == cut.key}; };
    if (sum_up(is_equal) <= equals) return {cut.key, row_.call.vocabulary};
    return {cut.key, reach_token(row_, equals - 1, is_equal) + 1};
  }

  // Sums of amount_of(token, logit) by block and group; returns that of all.
  template <typename AmountOf>
  __device__ uint64_t sum_up(const AmountOf& amount_of) const {
    __syncthreads();  // all are done with the sums before
    for (uint32_t at = threadIdx.x / kBlockThreads; at < count_; at += kGroupBlocks) {
      const uint32_t block = row_.live()[at];
      uint64_t sum = 0;
      visit_block(block, [&](uint32_t token, float logit) { sum += amount_of(token, logit); });
      sum = block_sum(sum);
      if (threadIdx.x % kBlockThreads == 0) row_.sums()[block] = sum;
    }
    __syncthreads();
    for (uint32_t group = threadIdx.x / kBlockThreads; group < row_.call.groups; group += kGroupBlocks) {
      const uint32_t end = min((group + 1) * kGroupBlocks, row_.call.blocks);
      uint64_t sum = 0;
      for (uint32_t block = group * kGroupBlocks + threadIdx.x % kBlockThreads; block < end; block += kBlockThreads) {
        sum += row_.sums()[block];
      }
      sum = block_sum(sum);
      if (threadIdx.x % kBlockThreads == 0) row_.group_sums()[group] = sum;
    }
    __syncthreads();
    return sum_of_row(row_);
  }

 private:
  template <typename Visit>
  __device__ void visit_block(uint32_t block, const Visit& visit) const {
    float values[kThreadTokens];
    row_.load(block, values);
#pragma unroll
    for (uint32_t i = 0; i < kThreadTokens; ++i) {
      if (Row::token(block, i) < row_.call.vocabulary) visit(Row::token(block, i), values[i]);
    }
  }

  const Row& row_;
  CutMemory& memory_;
  uint32_t count_;
};

}  // namespace headwater::backend::cuda::sampling
