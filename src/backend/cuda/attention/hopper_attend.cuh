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
  float l[2];        // sum of weights; of this thread's columns until finish()

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
  uint32_t rows_warp;           // of this warp's 16
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
    r.rows_warp = rows > warp_ * 16 ? min(rows - warp_ * 16, 16u) : 0;
    r.end_min = ~0u;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t row = warp_ * 16 + h * 8 + lane_ / 4;
      if (row >= rows) continue;
      const Visible visible = visible_keys(call_, shared_.stream[stream_].positions[first][call_.token_of_row(row)]);
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
                                         State& state) {
    const uint32_t tiles = (s.end - s.begin + kTileKeys - 1) / kTileKeys;
    float scores[kScores];    // written by products alone: what touches them otherwise would hold the products up
    float softened[kScores];  // the same, capped and masked; then weights
    uint32_t weights[kScores / 2];
    float rescale[2];
    Place before = place_of_next(is_shared);
    multiply_keys(before, first, scores);
    wait_products<0>();
    give_back(before.ring, before.keys, is_shared);
    raise_maximum(s, rows, scores, softened, state, rescale);
    exponentiate(rows, softened, state);
    pack_weights(softened, weights);
    for (uint32_t tile = 1; tile < tiles; ++tile) {
      const Place now = place_of_next(is_shared);
      multiply_keys(now, first, scores);
      multiply_values(before, weights, state);
      wait_products<1>();
      give_back(now.ring, now.keys, is_shared);
      raise_maximum({s.begin + tile * kTileKeys, s.end}, rows, scores, softened, state, rescale);
      exponentiate(rows, softened, state);
      wait_products<0>();
      give_back(before.ring, before.values, is_shared);
#pragma unroll
      for (uint32_t i = 0; i < State::kValues; ++i) state.o[i] *= rescale[i / 2 % 2];
      pack_weights(softened, weights);
      before = now;
    }
    clear_beyond(before, s.end - s.begin - (tiles - 1) * kTileKeys);
    multiply_values(before, weights, state);
    wait_products<0>();
    give_back(before.ring, before.values, is_shared);
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) state.l[h] = quad_sum(state.l[h]);
  }

  __device__ void begin_job() {
    tile_ = 0;
  }

 private:
  struct Place {
    uint32_t ring;
    uint32_t keys, values;  // uses of it
  };
  __device__ Place place_of_next(bool is_shared) {
    const uint32_t ring = is_shared ? tile_++ % kStreams : stream_;
    const uint32_t use = ring == 0 ? uses_[0] : uses_[1];
    (ring == 0 ? uses_[0] : uses_[1]) += 2;
    return {ring, use, use + 1};
  }
  __device__ unsigned char* wait_slot(uint32_t ring, uint32_t n) {
    const Use<kPolicy.slots> use(n);
    shared_.stream[ring].ring.wait_full(use);
    return shared_.slots[ring][use.place];
  }
  // By one arrival of each warpgroup that reads the slot.
  __device__ void give_back(uint32_t ring, uint32_t n, bool is_shared) {
    if (thread_ == 0)
      ptx::arrive(&shared_.stream[ring].ring.empty[Use<kPolicy.slots>(n).place], is_shared ? 1 : kStreams);
  }

  __device__ __forceinline__ void multiply_keys(const Place& at, uint32_t first, float (&scores)[kScores]) {
    const unsigned char* slot = wait_slot(at.ring, at.keys);
    const unsigned char* slab = shared_.slabs[stream_] + first * kHalfSlabRows * 128;
    begin_products();
#pragma unroll
    for (uint32_t panel = 0; panel < kPolicy.panels; ++panel) {
      const uint64_t a = descriptor::by_rows(slab + panel * kSlabRows * 128);
      const uint64_t b = descriptor::by_rows(slot + panel * kTileKeys * 128);
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        Product<Element, kTileKeys>::scores(scores, a + 2 * k, b + 2 * k, panel + k != 0);
      }
    }
    commit_products();
  }

  __device__ __forceinline__ void multiply_values(const Place& at, const uint32_t (&weights)[kScores / 2],
                                                  State& state) {
    const unsigned char* slot = wait_slot(at.ring, at.values);
    begin_products();
    const uint64_t b = descriptor::by_columns(slot, kTileKeys * 128);
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) {
      Product<Element, kPolicy.head_dim>::values(state.o, weights + 4 * k, b + 128 * k);
    }
    commit_products();
  }

  // Values behind the last key may be anything, NaN too: their weight is 0, but 0 * NaN is not.
  __device__ void clear_beyond(const Place& at, uint32_t keys) {
    if (keys == kTileKeys) return;
    unsigned char* slot = wait_slot(at.ring, at.values);
    constexpr uint32_t kPieces = kPolicy.panels * 8;  // of 16 bytes, of a key
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
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      rescale[h] = 1;
      if (rows.rows_warp <= 8 * h) continue;
      if (call_.softcap > 0) {
#pragma unroll
        for (uint32_t i = 2 * h; i < kScores; i += 4) {
          softened[i] = ptx::tanh(softened[i] * call_.score_scale) * call_.softcap;
          softened[i + 1] = ptx::tanh(softened[i + 1] * call_.score_scale) * call_.softcap;
        }
      }
      if (is_masked) {
        const uint32_t first = keys.begin + 2 * (lane_ % 4), end = min(rows.end[h], keys.end);
#pragma unroll
        for (uint32_t i = 0; i < kScores; i += 4) {
          const uint32_t key = first + 2 * i;
          if (key < rows.begin[h] || key >= end) softened[i + 2 * h] = -INFINITY;
          if (key + 1 < rows.begin[h] || key + 1 >= end) softened[i + 2 * h + 1] = -INFINITY;
        }
      }
      float largest = fmaxf(softened[2 * h], softened[2 * h + 1]);
#pragma unroll
      for (uint32_t i = 4; i < kScores; i += 4) {
        largest = fmaxf(largest, fmaxf(softened[i + 2 * h], softened[i + 2 * h + 1]));
      }
      const float m = fmaxf(state.m[h], quad_max(largest) * scale());
      rescale[h] = m == -INFINITY ? 1 : ptx::exp2(state.m[h] - m);
      state.m[h] = m;
      state.l[h] *= rescale[h];
    }
  }

  // Scores become softmax weights relative to the largest so far; those of rows that are not there, 0.
  __device__ __forceinline__ void exponentiate(const ThreadRows& rows, float (&softened)[kScores], State& state) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (rows.rows_warp > 8 * h) {
        const float m = state.m[h] == -INFINITY ? 0 : state.m[h];
        float sums[2] = {0, 0};
#pragma unroll
        for (uint32_t i = 2 * h; i < kScores; i += 4) {
          softened[i] = ptx::exp2(__fmaf_rn(softened[i], scale(), -m));
          softened[i + 1] = ptx::exp2(__fmaf_rn(softened[i + 1], scale(), -m));
          sums[0] += softened[i];
          sums[1] += softened[i + 1];
        }
        state.l[h] += sums[0] + sums[1];
      } else {
#pragma unroll
        for (uint32_t i = 2 * h; i < kScores; i += 4) softened[i] = softened[i + 1] = 0;
      }
    }
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
  uint32_t uses_[kStreams] = {0, 0};        // of the rings
  uint32_t tile_ = 0;                       // of the job
};

}  // namespace headwater::backend::cuda
