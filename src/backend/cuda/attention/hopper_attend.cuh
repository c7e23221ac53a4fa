// An attending warpgroup of the Hopper kernel: scores, softmax and values of up to 64 rows.
//
// Thread t of the warpgroup holds two rows, 16 * (t / 32) + (t % 32) / 4 and 8 below, every fourth pair of columns (the
// arrangement of wgmma.cuh). The product of the next tile's scores runs while this tile's values are multiplied, and the
// softmax of one warpgroup beside the products of the other.
//
// Adaptive mode: one state a job. Invariant mode: the state of every cut is computed from scratch and tiles end at cuts. No
// row is ever divided between warpgroups, so in both modes a row's bits depend on its own keys and where they are cut.
#pragma once

#include "backend/cuda/attention/hopper_shared.cuh"
#include "backend/cuda/attention/state.cuh"
#include "backend/cuda/attention/wgmma.cuh"

namespace headwater::backend::cuda {

template <uint32_t kHeadDim>
struct RowsState {
  static constexpr uint32_t kValues = kHeadDim / 2;
  float o[kValues];  // 4 j + 2 h + i: row half h, column 8 j + 2 (lane % 4) + i
  float m[2];        // largest score, times score_scale; -inf: no key yet
  float l[2];        // sum of weights; of this thread's columns until attend() ends

  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < kValues; ++i) o[i] = 0;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) m[h] = -INFINITY, l[h] = 0;
  }
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// The rows of one slab that a thread answers for.
struct ThreadRows {
  uint32_t begin[2], end[2];    // visible keys
  uint32_t begin_max, end_min;  // of the warp's rows: a tile inside needs no mask
};

// A stretch of keys with one state: all of an item's, or a cut.
struct Stretch {
  uint32_t begin, end;
};

template <typename Element, AttendPolicy kPolicy>
class Attender {
 public:
  using Shared = HopperShared<kPolicy>;
  using State = RowsState<kPolicy.head_dim>;
  static constexpr uint32_t kTileKeys = kPolicy.tile_keys;
  static constexpr uint32_t kScores = kTileKeys / 2;

  __device__ Attender(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call), shared_(shared), stream_(stream), thread_(thread), lane_(thread % kWarp), warp_(thread / kWarp) {}

  // first: half of the slab where the rows begin.
  __device__ ThreadRows rows_of(uint32_t first, uint32_t rows, uint32_t key_end) const {
    ThreadRows r{};
    r.end_min = ~0u;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t row = warp_ * 16 + h * 8 + lane_ / 4;
      if (row >= rows) continue;
      const SlabToken& token = shared_.stream[stream_].tokens[first * kHalfSlabRows + call_.token_of_row(row)];
      const Visible visible = visible_keys(call_, token.position);
      r.begin[h] = visible.begin;
      r.end[h] = min(visible.end, key_end);
      r.begin_max = max(r.begin_max, r.begin[h]);
      r.end_min = min(r.end_min, r.end[h]);
    }
    r.begin_max = __reduce_max_sync(~0u, r.begin_max);
    r.end_min = __reduce_min_sync(~0u, r.end_min);
    return r;
  }

  // Adds the stretch to a cleared state. Tiles come from this stream's ring; those of a shared job from both in turn.
  __device__ __forceinline__ void attend(const Stretch& s, bool is_shared, uint32_t first, const ThreadRows& rows,
                                         SlotReader<kPolicy>& slots, State& state) {
    const uint32_t tiles = (s.end - s.begin + kTileKeys - 1) / kTileKeys;
    uint32_t weights[kScores / 2];
    SlotUse before{};
#pragma unroll 1
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      // New ones for every tile: registers that live from one to the next would not suffice. Scores are written by products
      // alone, because what touches them otherwise would hold the products up.
      float scores[kScores], softened[kScores];
      float rescale[2];
      const SlotUse now = next_tile(slots, is_shared);
      multiply_keys(slots.wait(now), first, scores);
      // There are no values before the first tile, but a second copy of this loop would take longer to fetch than a product
      // of anything whose sums are forgotten.
      multiply_values(tile == 0 ? shared_.slots[stream_][0] : slots.wait(before.next()), weights, state);
      wait_products<1>();
      slots.give_back_by_one(now, is_shared, thread_);
      raise_maximum({s.begin + tile * kTileKeys, s.end}, rows, scores, softened, state, rescale);
      exponentiate(softened, state);
      ptx::hold(state.l[0] + state.l[1]);  // beside the products, not behind them
      wait_products<0>();
      if (tile > 0) slots.give_back_by_one(before.next(), is_shared, thread_);
#pragma unroll
      for (uint32_t i = 0; i < State::kValues; ++i) state.o[i] = tile == 0 ? 0 : state.o[i] * rescale[i / 2 % 2];
      pack_weights(softened, weights);
      before = now;
    }
    unsigned char* const values = slots.wait(before.next());
    clear_beyond(values, s.end - s.begin - (tiles - 1) * kTileKeys);
    multiply_values(values, weights, state);
    wait_products<0>();
    slots.give_back_by_one(before.next(), is_shared, thread_);
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) state.l[h] = quad_sum(state.l[h]);
  }

 private:
  // Keys of the next tile; its values lie in the slot behind.
  __device__ SlotUse next_tile(SlotReader<kPolicy>& slots, bool is_shared) {
    const SlotUse keys = slots.next(is_shared ? tile_++ % kStreams : stream_);
    slots.next(keys.ring);
    return keys;
  }

  __device__ __forceinline__ void multiply_keys(const unsigned char* slot, uint32_t first, float (&scores)[kScores]) {
    const uint32_t queries = uniform(ptx::shared_address(shared_.slabs[stream_] + first * kHalfSlabRows * 128));
    const uint32_t keys = uniform(ptx::shared_address(slot));
    begin_products();
#pragma unroll
    for (uint32_t panel = 0; panel < kPolicy.panels; ++panel) {
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        Product<Element, kTileKeys>::scores(scores, descriptor::by_rows(queries, panel * kSlabRows * 128 + 32 * k),
                                            descriptor::by_rows(keys, panel * kTileKeys * 128 + 32 * k),
                                            panel + k != 0);
      }
    }
    commit_products();
  }

  __device__ __forceinline__ void multiply_values(const unsigned char* slot, const uint32_t (&weights)[kScores / 2],
                                                  State& state) {
    begin_products();
    const uint32_t values = uniform(ptx::shared_address(slot));
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) {
      Product<Element, kPolicy.head_dim>::values(state.o, weights + 4 * k,
                                                 descriptor::by_columns(values, 2048 * k, kTileKeys * 128));
    }
    commit_products();
  }

  // Values behind the last key may be anything, NaN too: their weight is 0, but 0 * NaN is not.
  __device__ void clear_beyond(unsigned char* slot, uint32_t keys) {
    if (keys == kTileKeys) return;
    constexpr uint32_t kPieces = kPolicy.panels * 8;  // of 16 bytes, of a key
#pragma unroll 1
    for (uint32_t i = thread_; i < (kTileKeys - keys) * kPieces; i += kWarpgroup) {
      const uint32_t key = keys + i / kPieces, piece = i % kPieces;
      *reinterpret_cast<uint4*>(slot + (piece / 8 * kTileKeys + key) * 128 + piece % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    ptx::fence_async_shared();
    ptx::sync_named(1 + stream_, kWarpgroup);
  }

  // keys: from the tile's first to the stretch's last.
  __device__ __forceinline__ void raise_maximum(const Stretch& keys, const ThreadRows& rows,
                                                const float (&scores)[kScores], float (&softened)[kScores],
                                                State& state, float (&rescale)[2]) {
    const bool is_masked = keys.begin < rows.begin_max || keys.begin + kTileKeys > min(rows.end_min, keys.end);
#pragma unroll
    for (uint32_t i = 0; i < kScores; ++i) softened[i] = scores[i];
    if (call_.softcap > 0) {
#pragma unroll
      for (uint32_t i = 0; i < kScores; ++i) {
        softened[i] = ptx::tanh(softened[i] * call_.score_scale) * call_.softcap;
      }
    }
    if (is_masked) {
#pragma unroll
      for (uint32_t i = 0; i < kScores; ++i) {
        const uint32_t h = i / 2 % 2, key = keys.begin + 2 * (lane_ % 4) + i / 4 * 8 + i % 2;
        if (key < rows.begin[h] || key >= min(rows.end[h], keys.end)) softened[i] = -INFINITY;
      }
    }
    float largest[2][2];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) largest[i / 2][i % 2] = softened[i];
#pragma unroll
    for (uint32_t i = 4; i < kScores; ++i) {
      largest[i / 2 % 2][i % 2] = fmaxf(largest[i / 2 % 2][i % 2], softened[i]);
    }
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float m = fmaxf(state.m[h], quad_max(fmaxf(largest[h][0], largest[h][1])) * scale());
      rescale[h] = m == -INFINITY ? 1 : ptx::exp2(state.m[h] - m);
      state.m[h] = m;
      state.l[h] *= rescale[h];
    }
  }

  // Scores become softmax weights relative to the largest so far.
  __device__ __forceinline__ void exponentiate(float (&softened)[kScores], State& state) {
    float sums[2][2] = {{0, 0}, {0, 0}};
    float m[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) m[h] = state.m[h] == -INFINITY ? 0 : state.m[h];
#pragma unroll
    for (uint32_t i = 0; i < kScores; ++i) {
      const uint32_t h = i / 2 % 2;
      softened[i] = ptx::exp2(__fmaf_rn(softened[i], scale(), -m[h]));
      sums[h][i % 2] += softened[i];
    }
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) state.l[h] += sums[h][0] + sums[h][1];
  }

  __device__ __forceinline__ void pack_weights(const float (&softened)[kScores],
                                               uint32_t (&weights)[kScores / 2]) const {
#pragma unroll
    for (uint32_t i = 0; i < kScores / 2; ++i) weights[i] = pack<Element>(softened[2 * i], softened[2 * i + 1]);
  }

  // What is left to multiply scores with: a soft-cap has scaled them already.
  __device__ float scale() const {
    return call_.softcap > 0 ? 1.0f : call_.score_scale;
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t stream_, thread_, lane_, warp_;  // thread and warp of the warpgroup
  uint32_t tile_ = 0;                       // of the job
};

}  // namespace headwater::backend::cuda
