// The numbers of the Hopper attend kernel, by head size: what one block of threads holds and how it is divided.
//
// A block has three warpgroups. The first loads, the other two attend, each fed by a stream of its own:
//
//   stream 0: loader warp, query warp -> jobs, queries, ring of slots -> attending warpgroup 0
//   stream 1: loader warp, query warp -> jobs, queries, ring of slots -> attending warpgroup 1
//
// A job of one slab (64 rows, the least that a warpgroup's matrix instruction takes) is one stream's alone. Items of more
// rows are worked on by both: a slab each, and every tile, which then lies in the ring of its parity, is read by both.
// Jobs of few rows go another way through the same rings: every warp attends some keys of a tile, with the matrix
// instruction of a warp.
// Source of the division into loading and attending warpgroups: Shah et al., "FlashAttention-3", arXiv 2407.08608.
#pragma once

#include <cstdint>

#include "core/on_device.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kStreams = 2;
inline constexpr uint32_t kSlabRows = 64;
inline constexpr uint32_t kSharedBytesMax = 227 * 1024;  // of a block, compute capability 9.0

struct AttendPolicy {
  uint32_t head_dim;  // columns in shared memory; smaller heads are padded with zeros
  uint32_t tile_keys;
  uint32_t slots;  // of a ring, a tile of keys or of values each
  uint32_t slot_bytes;
  uint32_t slab_bytes;  // of queries
  uint32_t panels;      // of 64 columns, 128 bytes: the widest swizzle
  // Jobs of few rows:
  uint32_t few_rows;   // at most
  uint32_t keys_warp;  // of a tile, for each of its first tile_keys / keys_warp warps
};

constexpr AttendPolicy attend_policy(uint32_t head_dim) {
  const auto policy = [](uint32_t columns, uint32_t tile_keys, uint32_t slots, uint32_t few_rows) {
    const uint32_t keys_warp = tile_keys / 4 < 16 ? 16 : tile_keys / 4;
    return AttendPolicy{columns,      tile_keys, slots,    tile_keys * columns * 2, kSlabRows * columns * 2,
                        columns / 64, few_rows,  keys_warp};
  };
  if (head_dim <= 64) return policy(64, 128, 6, 16);
  if (head_dim <= 128) return policy(128, 128, 3, 16);
  return policy(256, 32, 5, 8);
}

template <uint32_t kHeadDim>
inline constexpr AttendPolicy kAttendPolicy = attend_policy(kHeadDim);

// Query tokens of one KV head in a slab: the rows of a token stay together. 0: the group is too large.
constexpr uint32_t slab_tokens(uint32_t group) {
  return group == 0 || group > kSlabRows ? 0 : kSlabRows / group;
}

// Division by a number that the host knows, in two instructions: cold code costs a kernel more than it computes. Exact where
// n * divisor < 2^31.
struct Division {
  uint32_t divisor, inverse;  // 2^31 / divisor, rounded up

  HEADWATER_ON_DEVICE constexpr uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>(uint64_t{2 * n} * inverse >> 32);
  }
};
constexpr Division division_by(uint32_t divisor) {
  return {divisor, ((1u << 31) - 1) / divisor + 1};
}

// The n-th job of `items` items: which of them, and for which KV head. 2^together_log2 (up to 32) items for one KV head, then
// for the next. Memory serves best who reads all heads of a page at the same time; but where items that follow each other read
// the same pages, the cache serves best who reads a page for many.
struct JobPlace {
  uint32_t item, kv_head;
};
HEADWATER_ON_DEVICE constexpr JobPlace place_of_job(uint32_t job, uint32_t items, const Division& kv_heads,
                                                    uint32_t together_log2) {
  const uint32_t together = 1u << together_log2;
  const uint32_t begin = kv_heads.quotient(job >> together_log2) << together_log2;
  const uint32_t count = items - begin < together ? items - begin : together, at = job - begin * kv_heads.divisor;
  // In floats, which are far from wrong: at < 2^5 * 2^8.
  const float middle = static_cast<float>(at) + 0.5f;
#ifdef __CUDA_ARCH__
  const auto kv_head = static_cast<uint32_t>(__fdividef(middle, static_cast<float>(count)));
#else
  const auto kv_head = static_cast<uint32_t>(middle / static_cast<float>(count));
#endif
  return {begin + at - kv_head * count, kv_head};
}

// Of a partial: the columns of a row, then its lse2, in steps of 16 bytes.
HEADWATER_ON_DEVICE constexpr uint32_t partial_floats(uint32_t head_dim) {
  return head_dim + 4;
}

// 2^16 / group, rounded up: row * inverse_of(group) >> 16 is row / group, for the rows of a slab and groups that fit one.
constexpr uint32_t inverse_of(uint32_t group) {
  return ((1u << 16) + group - 1) / group;
}

// Keys that one copy of the loader moves: the largest power of two that divides a page, up to a tile.
constexpr uint32_t chunk_keys(uint32_t page_size, uint32_t tile_keys) {
  uint32_t chunk = 16;
  while (chunk * 2 <= tile_keys && page_size % (chunk * 2) == 0) chunk *= 2;
  return chunk;
}

}  // namespace headwater::backend::cuda
