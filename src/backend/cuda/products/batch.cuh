// 128 rows of a weight times up to 64 rows of x, by the products of warpgroups. Roofline: docs/kernels/products-cuda.md.
//
// A block's eight multiplying warps decode a tile of 16 rows of the weight each, in registers: the left operand, BF16,
// multiplied with its scale. The right one, x, lies in shared memory for all of them. One more warp has both copied there by the
// copy engine, a stage (a pair of blocks of columns) at a time, without a pause between tiles.
//
// Where there are fewer tiles than a device has places for blocks, the blocks of a cluster share eight: each multiplies a slice
// of the columns, and their sums are added in the order of the slices. So the bits of an output depend on the row of x, the
// weights of the launch, kTokens and the device.
//
// A gated product's tiles are eight rows of gate and the same ones of up, so what stands between them is done where their sums are.
//
// Two blocks fill a multiprocessor's shared memory, as in few.cuh.
#pragma once

#include "backend/cuda/attention/wgmma.cuh"
#include "backend/cuda/products/batch.h"
#include "backend/cuda/products/cluster.cuh"
#include "backend/cuda/products/few.cuh"
#include "backend/cuda/step/activated.cuh"

namespace headwater::backend::cuda {

inline constexpr uint32_t kBatchWarps = kGroupTiles;  // that multiply
inline constexpr uint32_t kBatchThreads = (kBatchWarps + 1) * kLanes;
inline constexpr uint32_t kBatchSplits = 8;  // at most: what the clusters of every device may have

// In dynamic shared memory.
template <typename Coding, uint32_t kTokens>
struct BatchShared {
  struct Stage {
    unsigned char x[kTokens * kPairColumns * sizeof(__nv_bfloat16)];  // [token][column], 128-byte swizzle
    typename Coding::Stage weight[kBatchWarps];
    static constexpr uint32_t kBytes = sizeof(x) + sizeof(weight);
  };
  static constexpr uint32_t kStageBytes = (uint32_t{sizeof(Stage)} + 1023) / 1024 * 1024;
  static constexpr uint32_t kStages = (kFewSharedBytes - 256) / kStageBytes, kRows = kBatchWarps * kTileRows;
  static_assert(kStages >= 4 && kStages <= 16);
  union {
    alignas(1024) unsigned char stages[kStages][kStageBytes];
    float sums[kTokens][kRows + 4];  // when all is multiplied
  };
  uint64_t full[kStages], empty[kStages];

  __device__ Stage& stage(uint32_t index) { return reinterpret_cast<Stage&>(stages[index]); }
};

// What a block does: of each eight tiles in turn a slice of the columns.
struct BatchWork {
  const FewCall& call;
  uint32_t splits, slice;          // of the columns
  uint32_t pair_begin, own_pairs;  // of the slice
  uint32_t tile_begin, tile_stride;

  __device__ explicit BatchWork(const BatchCall& of)
      : call(of.product),
        splits(of.splits),
        slice(blockIdx.x % splits),
        pair_begin(call.pairs * slice / splits),
        own_pairs(call.pairs * (slice + 1) / splits - pair_begin),
        tile_begin(blockIdx.x / splits * kBatchWarps),
        tile_stride(gridDim.x / splits * kBatchWarps) {}
};

// The warp that has weights and x copied.
template <typename Coding, uint32_t kTokens, bool kIsGated>
class BatchLoader {
 public:
  using Shared = BatchShared<Coding, kTokens>;

  __device__ BatchLoader(const BatchCall& call, Shared& shared) : call_(call), work_(call), shared_(shared) {}

  // By one lane. Weights depend on no kernel ahead.
  __device__ void run() {
    walk([&](uint32_t n, const FewCall::PartTile& at, uint32_t pair) {
      load_weight(n, at, pair);
      return n + 1 < kStages;
    });
    wait_for_kernels_ahead();
    walk([&](uint32_t n, const FewCall::PartTile& at, uint32_t pair) {
      if (n >= kStages) {
        ptx::wait(&shared_.empty[n % kStages], (n / kStages & 1) ^ 1);
        load_weight(n, at, pair);
      }
      ptx::copy_box(shared_.stage(n % kStages).x, &call_.x, pair * kPairColumns, 0, &shared_.full[n % kStages]);
      return true;
    });
  }

 private:
  static constexpr uint32_t kStages = Shared::kStages;

  // Calls `run` with the number of each stage, the first tile and the pair, until it says no.
  template <typename Run>
  __device__ void walk(const Run& run) const {
    uint32_t n = 0;
    for (uint32_t tile = work_.tile_begin; tile < work_.call.tiles(); tile += work_.tile_stride) {
      const FewCall::PartTile at = work_.call.part_of(tile);
      for (uint32_t i = 0; i < work_.own_pairs; ++i, ++n) {
        if (!run(n, at, work_.pair_begin + i)) return;
      }
    }
  }

  __device__ void load_weight(uint32_t n, const FewCall::PartTile& at, uint32_t pair) const {
    auto& to = shared_.stage(n % kStages).weight;
    uint64_t* const full = &shared_.full[n % kStages];
    ptx::arrive_expecting(full, Shared::Stage::kBytes);
    if constexpr (Coding::kHasScale) {
      const typename Coding::Place from(work_.call.parts[at.part].weight, work_.call.pairs, at.tile, pair, 0);
      ptx::copy_bytes(to, from.from, sizeof to, full);
    } else if constexpr (kIsGated) {  // 64 rows of each
      const uint32_t row = at.tile * kGatedTileRows;
      ptx::copy_box(to, &call_.weights[0], pair * kPairColumns, row, full);
      ptx::copy_box(to + kBatchWarps / 2, &call_.weights[1], pair * kPairColumns, row, full);
    } else {
      ptx::copy_box(to, &call_.weights[at.part], pair * kPairColumns, at.tile * kTileRows, full);
    }
  }

  const BatchCall& call_;
  const BatchWork work_;
  Shared& shared_;
};

// A warp that multiplies. Gated: a tile is eight rows of gate and the same ones of up, so a lane has both of an output.
template <typename Coding, uint32_t kTokens, bool kIsGated>
class BatchMultiplier {
 public:
  using Shared = BatchShared<Coding, kTokens>;

  __device__ BatchMultiplier(const BatchCall& call, Shared& shared)
      : call_(call),
        work_(call),
        shared_(shared),
        warp_(__shfl_sync(~0u, threadIdx.x / kLanes, 0)),
        lane_(threadIdx.x % kLanes) {}

  __device__ void run() {
    Position at{0, 0};
    for (uint32_t tile = work_.tile_begin; tile < work_.call.tiles(); tile += work_.tile_stride) {
#pragma unroll
      for (float& sum : sums_) sum = 0;
      uint32_t pairs = work_.own_pairs;
#pragma unroll 1
      for (; pairs >= kTogether; pairs -= kTogether) add<kTogether>(at);
#pragma unroll 1
      for (; pairs > 0; --pairs) add<1>(at);
#pragma unroll
      for (float& sum : sums_) asm volatile("" : "+f"(sum)::"memory");  // nothing reads it before the wait
      if constexpr (kIsGated) {
        store_gated(tile);
      } else if (work_.splits == 1) {
        store_sums(tile);
      } else {
        add_slices(tile);
      }
    }
  }

 private:
  static constexpr uint32_t kSums = kTokens / 2;
  static constexpr uint32_t kTogether =
      Shared::kStages >= 6 ? 2 : 1;  // stages: the more, the less often products are waited for
  using Product = cuda::Product<__nv_bfloat16, kTokens>;

  struct Position {  // in the ring
    uint32_t stage, phase;
    __device__ void advance() {
      if (++stage == Shared::kStages) stage = 0, phase ^= 1;
    }
  };

  // kPairs stages. The other warpgroups of the multiprocessor decode while this one's products run.
  template <uint32_t kPairs>
  __device__ __forceinline__ void add(Position& at) {
    TileWords words[kPairs][2];
    uint32_t x[kPairs], stages[kPairs];
#pragma unroll
    for (uint32_t p = 0; p < kPairs; ++p, at.advance()) {
      stages[p] = at.stage;
      ptx::wait(&shared_.full[at.stage], at.phase);
      typename Shared::Stage& stage = shared_.stage(at.stage);
      if constexpr (kIsGated) {
        read_gated(stage, 0, words[p][0]);
        read_gated(stage, 1, words[p][1]);
      } else {
        decode_scaled<Coding>(stage.weight[warp_], 0, lane_, words[p][0]);
        decode_scaled<Coding>(stage.weight[warp_], 1, lane_, words[p][1]);
      }
      x[p] = __shfl_sync(~0u, ptx::shared_address(stage.x), 0);
    }
    begin_products();
#pragma unroll
    for (uint32_t i = 0; i < 4 * kPairs; ++i) {
      Product::scores(sums_, words[i / 4][i / 2 % 2][i % 2], descriptor::by_rows(x[i / 4], 32 * (i % 4)), true);
    }
    commit_products();
    wait_products<0>();
    if (lane_ < kPairs) ptx::arrive(&shared_.empty[lane_ == 0 ? stages[0] : stages[kPairs - 1]]);
  }

  // A warp's rows of gate, then of up.
  __device__ __forceinline__ void read_gated(const typename Shared::Stage& stage, uint32_t block, TileWords& a) const {
    const uint32_t row = lane_ % 16 / 8 * kGatedGroupRows + warp_ * kGatedTileRows + lane_ % 8;
    Coding::read(stage.weight[0].pieces, row, block, lane_, a);
  }

  __device__ uint32_t token_of(uint32_t i) const {
    return i / 4 * 8 + lane_ % 4 * 2 + i % 2;
  }
  __device__ uint32_t row_of(uint32_t i) const {
    return lane_ / 4 + i / 2 % 2 * 8;
  }
  __device__ void store_gated(uint32_t tile) const {
    const FewCall::Part &gate = work_.call.parts[0], &up = work_.call.parts[1];
    const uint32_t first = (tile + warp_) * kGatedTileRows, row = first + lane_ / 4;
    float bias[2] = {0, 0};
    if (row < gate.rows && gate.weight.bias != nullptr) bias[0] = gate.weight.bias[row];
    if (row < gate.rows && up.weight.bias != nullptr) bias[1] = up.weight.bias[row];
    auto* const out = static_cast<__nv_bfloat16*>(gate.out.data) + first + lane_ % 4 * 2;
    const uint32_t rows_here = gate.rows - min(gate.rows, first + lane_ % 4 * 2);  // from this lane's first one on
#pragma unroll
    for (uint32_t token = 0; token < kTokens; token += 8) {
      const float* const sums = sums_ + token / 2;
      const auto gated = [&](uint32_t i) {
        return activated(call_.activation, sums[i] + bias[0], sums[i + 2] + bias[1]);
      };
      const uint32_t two = transposed(pack<__nv_bfloat16>(gated(0), gated(1)));
      const uint32_t mine = token + lane_ / 4;
      if (mine >= work_.call.tokens || rows_here == 0) continue;
      if (rows_here >= 2) {
        *reinterpret_cast<uint32_t*>(out + mine * gate.out.stride) = two;
      } else {
        out[mine * gate.out.stride] = reinterpret_cast<const __nv_bfloat162&>(two).x;
      }
    }
  }
  __device__ void store_sums(uint32_t tile) const {
    const FewCall::PartTile at = work_.call.part_of(tile + warp_);
    const FewCall::Part& part = work_.call.parts[at.part];
    const uint32_t first = at.tile * kTileRows;
    if (part.out.is_short && first + kTileRows <= part.rows && can_store_fours(part)) {
      store_transposed(part, first);
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kSums; ++i) {
      if (token_of(i) < work_.call.tokens) store_sum(part, token_of(i), first + row_of(i), sums_[i]);
    }
  }
  // As BF16. A lane has two tokens of a row, and stores four rows of a token: so lanes fill whole sectors of 32 bytes.
  __device__ __forceinline__ void store_transposed(const FewCall::Part& part, uint32_t first) const {
    float bias[2] = {0, 0};
    if (part.weight.bias != nullptr) {
      bias[0] = part.weight.bias[first + lane_ / 4], bias[1] = part.weight.bias[first + 8 + lane_ / 4];
    }
    auto* const out = static_cast<__nv_bfloat16*>(part.out.data) + first + lane_ % 4 * 4;
    const uint32_t from = lane_ / 4 * 4 + lane_ % 2 * 2;  // the lanes that have two rows each
#pragma unroll
    for (uint32_t token = 0; token < kTokens; token += 8) {
      const float* const sums = sums_ + token / 2;
      const uint32_t low = transposed(pack<__nv_bfloat16>(sums[0] + bias[0], sums[1] + bias[0]));
      const uint32_t high = transposed(pack<__nv_bfloat16>(sums[2] + bias[1], sums[3] + bias[1]));
      const uint2 lows = make_uint2(__shfl_sync(~0u, low, from), __shfl_sync(~0u, low, from + 1));
      const uint2 highs = make_uint2(__shfl_sync(~0u, high, from), __shfl_sync(~0u, high, from + 1));
      const uint32_t mine = token + lane_ / 4;
      if (mine < work_.call.tokens) {
        *reinterpret_cast<uint2*>(out + mine * part.out.stride) = lane_ % 4 < 2 ? lows : highs;
      }
    }
  }
  // Of a matrix of 8 x 8, two columns of a row a lane. Source: PTX ISA 9.0, "movmatrix".
  __device__ static uint32_t transposed(uint32_t word) {
    uint32_t of;
    __syncwarp();  // lanes whose token is none have gone past their store
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(of) : "r"(word));
    return of;
  }

  // The sums of all blocks of the cluster: each adds up some of them.
  __device__ void add_slices(uint32_t tile) {
    constexpr uint32_t kThreads = kBatchWarps * kLanes;
    auto& sums = shared_.sums;
    ptx::sync_named(1, kThreads);  // nothing is multiplied any more
#pragma unroll
    for (uint32_t i = 0; i < kSums; ++i) sums[token_of(i)][warp_ * kTileRows + row_of(i)] = sums_[i];
    sync_cluster();
    constexpr uint32_t kFours = Shared::kRows / 4;
    for (uint32_t i = work_.slice * kThreads + threadIdx.x; i < work_.call.tokens * kFours;
         i += work_.splits * kThreads) {
      const uint32_t token = i / kFours, row = i % kFours * 4;
      const auto* const place = reinterpret_cast<const float4*>(&sums[token][row]);
      const float4 sum = work_.splits <= 4 ? sum_slices<4>(place) : sum_slices<kBatchSplits>(place);
      const FewCall::PartTile at = work_.call.part_of(tile + row / kTileRows);
      store_fours(work_.call.parts[at.part], token, at.tile * kTileRows + row % kTileRows, sum);
    }
  }

  // Of all blocks what lies at `place`, kLoads on their way together.
  template <uint32_t kLoads>
  __device__ __forceinline__ float4 sum_slices(const float4* place) const {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (uint32_t first = 0; first < work_.splits; first += kLoads) {
      float4 of_slice[kLoads];
#pragma unroll
      for (uint32_t s = 0; s < kLoads; ++s) of_slice[s] = load_of_block(place, min(first + s, work_.splits - 1));
#pragma unroll
      for (uint32_t s = 0; s < kLoads; ++s) {
        if (first + s >= work_.splits) break;
        sum = make_float4(sum.x + of_slice[s].x, sum.y + of_slice[s].y, sum.z + of_slice[s].z, sum.w + of_slice[s].w);
      }
    }
    return sum;
  }

  const BatchCall& call_;
  const BatchWork work_;
  Shared& shared_;
  const uint32_t warp_, lane_;
  float sums_[kSums];  // of rows and tokens as in wgmma.cuh
};

// A block's part in a launch.
template <typename Coding, uint32_t kTokens, bool kIsGated>
__device__ void multiply_batch_block(const BatchCall& call, BatchShared<Coding, kTokens>& shared) {
  const bool is_loader = threadIdx.x / kLanes == kBatchWarps;
  if (is_loader && ptx::is_elected()) {
    for (uint32_t s = 0; s < shared.kStages; ++s) {
      ptx::init_barrier(&shared.full[s], 1);
      ptx::init_barrier(&shared.empty[s], kBatchWarps);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (is_loader) {
    if (ptx::is_elected()) BatchLoader<Coding, kTokens, kIsGated>(call, shared).run();
    __syncwarp();
    if (call.splits > 1) sync_cluster();
  } else {
    BatchMultiplier<Coding, kTokens, kIsGated>(call, shared).run();
  }
  if (call.splits > 1) sync_cluster();  // nobody leaves whose sums are still read
}

}  // namespace headwater::backend::cuda
