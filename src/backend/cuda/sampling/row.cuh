// A row of logits as the kernels see it. Eight threads share a block of 64 logits, so that a block of threads has a group at
// hand. Sums of weights are whole numbers, so nothing here depends on who adds first.
#pragma once

#include "backend/cuda/sampling/call.h"
#include "backend/cuda/sampling/weights.h"

namespace headwater::backend::cuda::sampling {

inline constexpr uint32_t kBlockThreads = 8, kThreadTokens = kBlockTokens / kBlockThreads;
inline constexpr uint32_t kThreads = kGroupBlocks * kBlockThreads;
inline constexpr uint32_t kLanes = 32, kWarps = kThreads / kLanes, kAllLanes = 0xffffffffu;

struct Row {
  __device__ Row(const SampleCall& all, uint32_t number)
      : call(all), params(all.row_calls[number]), index(number), logits(all.logits + number * all.stride) {}

  __device__ uint64_t block_base() const { return uint64_t{index} * call.blocks; }
  __device__ uint64_t group_base() const { return uint64_t{index} * call.groups; }
  __device__ float* maxima() const { return call.maxima + block_base(); }
  __device__ float* group_maxima() const { return call.group_maxima + group_base(); }
  __device__ uint64_t* sums() const { return call.sums + block_base(); }
  __device__ uint64_t* group_sums() const { return call.group_sums + group_base(); }
  __device__ uint32_t* live() const { return call.live + block_base(); }
  __device__ float& peak() const { return call.peaks[index]; }
  __device__ bool is_done() const { return !isfinite(peak()); }

  // What this thread has of a block: token(block, i) for each i, four side by side. Past the end -inf.
  __device__ static uint32_t token(uint32_t block, uint32_t i) {
    return block * kBlockTokens + i / 4 * 4 * kBlockThreads + threadIdx.x % kBlockThreads * 4 + i % 4;
  }
  __device__ void load(uint32_t block, float (&values)[kThreadTokens]) const {
    if (call.has_fours) {
#pragma unroll
      for (uint32_t i = 0; i < kThreadTokens; i += 4) {
        const uint32_t first = token(block, i);
        const float4 four = first < call.vocabulary ? *reinterpret_cast<const float4*>(logits + first)
                                                    : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
      }
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kThreadTokens; ++i) {
      values[i] = token(block, i) < call.vocabulary ? logits[token(block, i)] : -INFINITY;
    }
  }

  const SampleCall& call;
  const RowCall& params;
  const uint32_t index;
  float* const logits;
};

// By the eight threads of a block, all of which come here; they alone need to be together.
__device__ inline uint32_t block_lanes() {
  return 0xffu << (threadIdx.x % kLanes / kBlockThreads * kBlockThreads);
}
__device__ inline float block_largest(float x) {
#pragma unroll
  for (uint32_t lane = kBlockThreads / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(block_lanes(), x, lane));
  return x;
}
__device__ inline uint64_t block_sum(uint64_t x) {
#pragma unroll
  for (uint32_t lane = kBlockThreads / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(block_lanes(), x, lane);
  return x;
}

// By whole warps.
__device__ inline float warp_largest(float x) {
#pragma unroll
  for (uint32_t lane = kLanes / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lane));
  return x;
}
__device__ inline uint64_t warp_sum(uint64_t x) {
#pragma unroll
  for (uint32_t lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}
__device__ inline uint64_t warp_scan(uint64_t x) {  // the sum of this lane's and all before it
#pragma unroll
  for (uint32_t distance = 1; distance < kLanes; distance *= 2) {
    const uint64_t before = __shfl_up_sync(kAllLanes, x, distance);
    if (threadIdx.x % kLanes >= distance) x += before;
  }
  return x;
}

// The first number in [begin, end) for which it holds; there is one. By a whole warp.
template <typename Holds>
__device__ uint32_t first_where(uint32_t begin, uint32_t end, const Holds& holds) {
  for (uint32_t base = begin;; base += kLanes) {
    const uint32_t i = base + threadIdx.x % kLanes;
    const uint32_t lanes = __ballot_sync(kAllLanes, i < end && holds(i));
    if (lanes != 0 || base + kLanes >= end) return base + (lanes != 0 ? __ffs(lanes) - 1 : 0);
  }
}

// The largest logit by the maxima, and the first token that has it. By a whole warp.
struct Peak {
  float logit;
  uint32_t token;  // where the logit is finite
};
__device__ inline Peak find_peak(const Row& row) {
  const float* groups = row.group_maxima();
  const float* blocks = row.maxima();
  float peak = -INFINITY;
  for (uint32_t i = threadIdx.x % kLanes; i < row.call.groups; i += kLanes) peak = fmaxf(peak, groups[i]);
  peak = warp_largest(peak);
  if (!isfinite(peak)) return {peak, 0};
  const uint32_t group = first_where(0, row.call.groups, [&](uint32_t i) { return groups[i] == peak; });
  const uint32_t blocks_end = min((group + 1) * kGroupBlocks, row.call.blocks);
  const uint32_t block = first_where(group * kGroupBlocks, blocks_end, [&](uint32_t i) { return blocks[i] == peak; });
  const uint32_t tokens_end = min((block + 1) * kBlockTokens, row.call.vocabulary);
  return {peak, first_where(block * kBlockTokens, tokens_end, [&](uint32_t i) { return row.logits[i] == peak; })};
}

// The first number in [begin, end) up to which amounts sum up to more than `target`, which is less than their whole sum;
// target loses what comes before it. By a whole warp.
template <typename AmountAt>
__device__ uint32_t reach(uint32_t begin, uint32_t end, uint64_t& target, const AmountAt& amount_at) {
  for (uint32_t base = begin;; base += kLanes) {
    const uint32_t i = base + threadIdx.x % kLanes;
    const uint64_t amount = i < end ? amount_at(i) : 0;
    const uint64_t reached = warp_scan(amount);
    const uint32_t lanes = __ballot_sync(kAllLanes, reached > target);
    if (lanes != 0 || base + kLanes >= end) {
      const uint32_t lane = lanes != 0 ? __ffs(lanes) - 1 : 0;
      target -= __shfl_sync(kAllLanes, reached - amount, lane);
      return base + lane;
    }
    target -= __shfl_sync(kAllLanes, reached, kLanes - 1);
  }
}

// The same among a row's tokens: by its sums of groups and blocks, then by amount_of(token, logit). By a whole warp.
template <typename AmountOf>
__device__ uint32_t reach_token(const Row& row, uint64_t target, const AmountOf& amount_of) {
  const uint32_t group = reach(0, row.call.groups, target, [&](uint32_t i) { return row.group_sums()[i]; });
  const uint32_t blocks_end = min((group + 1) * kGroupBlocks, row.call.blocks);
  const uint32_t block = reach(group * kGroupBlocks, blocks_end, target, [&](uint32_t i) { return row.sums()[i]; });
  const uint32_t tokens_end = min((block + 1) * kBlockTokens, row.call.vocabulary);
  return reach(block * kBlockTokens, tokens_end, target, [&](uint32_t i) { return amount_of(i, row.logits[i]); });
}

// Of the groups' sums. By a whole warp.
__device__ inline uint64_t sum_of_row(const Row& row) {
  uint64_t sum = 0;
  for (uint32_t group = threadIdx.x % kLanes; group < row.call.groups; group += kLanes) sum += row.group_sums()[group];
  return warp_sum(sum);
}

// Takes biases and penalties back. By all threads, which are done with the changed logits.
__device__ inline void take_back(const Row& row) {
  if (!row.params.changes_logits) return;
  const uint32_t first = row.params.first_word;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < row.params.ids(); i += kThreads) {
    row.logits[row.call.words[first + i]] = row.call.saved[first + i];
  }
  __syncthreads();
}

// By one thread: a token, or what is in its place.
__device__ inline void send(const Row& row, TokenId token) {
  row.call.tokens[row.index] = row.call.tokens_sent[row.index] = token;
}
// By one thread, with the row's logits as the model gave them.
__device__ inline void choose(const Row& row, uint32_t token) {
  send(row, static_cast<TokenId>(token));
  if (row.params.wants_logprobs) row.call.logprobs[row.index].chosen = row.logits[token];
}

// Whether these threads are the last of the gridDim.x blocks of threads that share the row; then they see what all of
// them wrote. Once in a kernel.
__device__ inline bool is_last_of_row(const Row& row) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(&row.call.arrived[row.index], gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

}  // namespace headwater::backend::cuda::sampling
