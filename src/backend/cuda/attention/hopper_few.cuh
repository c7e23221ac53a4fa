// Jobs of few rows: every warp of an attending warpgroup attends its own keys of each tile, with keys where the products
// of many rows have rows, and the warps' states meet at the end of the job.
//
//   scores^T [16 keys x 8 rows] += keys [16 x 16] * queries^T [16 x 8]      a step for every 16 columns
//   out^T [16 columns x 8 rows] += values^T [16 x 16] * weights^T [16 x 8]  a step for every 16 keys
//
// So a row is spread over the lanes of a warp, a step of one sequence costs the softmax of no padding, and no warp waits for
// another one inside a job. A lane answers for rows 2 (lane % 4) and the next of each 8, in all its products.
// Adaptive mode only: how the keys of a row are divided among warps depends on where its items begin.
#pragma once

#include "backend/cuda/attention/hopper_shared.cuh"
#include "backend/cuda/attention/rows.cuh"
#include "backend/cuda/attention/state.cuh"

namespace headwater::backend::cuda {

// kEights: of rows.
template <typename Element, AttendPolicy kPolicy, uint32_t kEights>
class FewRows {
 public:
  using Shared = HopperShared<kPolicy>;
  static constexpr uint32_t kRows = 8 * kEights;
  static constexpr uint32_t kKeysWarp = kPolicy.keys_warp;
  static constexpr uint32_t kSixteens = kKeysWarp / 16;
  static constexpr uint32_t kWarpsBusy = kPolicy.tile_keys / kKeysWarp;
  static constexpr uint32_t kSteps = kPolicy.head_dim / 16;

  static_assert(kRows * kPolicy.head_dim * sizeof(float) * kWarpsBusy <= kPolicy.slot_bytes);

  __device__ FewRows(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call), shared_(shared), stream_(stream), lane_(thread % kWarp), warp_(thread / kWarp) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t first = warp_ * kKeysWarp;
      keys_at_[i] = swizzled<kPolicy.tile_keys>(first + lane_ % 16, 2 * i + lane_ / 16);
      values_at_[i] = swizzled<kPolicy.tile_keys>(first + lane_ % 8 + lane_ / 16 * 8, 2 * i + lane_ / 8 % 2);
    }
  }

  // A job's rows, whose queries lie in the slab's half `first`. The warps' states are then where gather() finds them: in the
  // slot of the last values and in the queries' place, which release() and the caller give back.
  __device__ __forceinline__ void attend(const Job& job, uint32_t first, uint32_t rows, SlotReader<kPolicy>& slots) {
    const uint32_t key_begin = uniform(job.key_begin), key_end = key_begin + uniform(job.key_count);
    load_queries(first);
    see(job, first, rows, key_end);
    clear();
    for (uint32_t key = key_begin;; key += kPolicy.tile_keys) {
      const bool is_last = key + kPolicy.tile_keys >= key_end;
      attend_tile(key, key_end, slots, is_last);
      if (is_last) break;
      slots.give_back_by_warp(slots.last(), lane_);
    }
    shared_.clocks.products_done();
    spread(first, slots);
  }

  // A row of this job, by all lanes that will hold it.
  template <typename Row>
  __device__ __forceinline__ Row gather(uint32_t first, uint32_t row, const SlotReader<kPolicy>& slots) const {
    const float* const sums = sums_in(slots);
    const float2* const states = states_in(first);
    float2 state[kWarpsBusy];
    float m = -INFINITY, l = 0;
#pragma unroll
    for (uint32_t w = 0; w < kWarpsBusy; ++w) {
      state[w] = states[w * kRows + row];
      m = fmaxf(m, state[w].x);
    }
    const float base = m == -INFINITY ? 0 : m;
    Row sum;
    sum.clear();
#pragma unroll
    for (uint32_t w = 0; w < kWarpsBusy; ++w) {
      const float weight = ptx::exp2(state[w].x - base);
      l = __fmaf_rn(weight, state[w].y, l);
#pragma unroll
      for (uint32_t i = 0; i < Row::kQuads; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(sums + sum_at(w, row, Row::column(i, lane_)));
        sum.add(i, weight, v);
      }
    }
    sum.scale(l > 0 ? __fdividef(1, l) : 0);
    sum.lse2 = l > 0 ? m + ptx::log2(l) : -INFINITY;
    return sum;
  }

  __device__ void release(const SlotReader<kPolicy>& slots) const {
    ptx::fence_async_shared();  // copies will write where this warp wrote
    __syncwarp();
    slots.give_back_by_warp(slots.last(), lane_);
  }

 private:
  // From the first 16 keys and the step of the same number in the first panel.
  __device__ static constexpr uint32_t beside(uint32_t sixteen, uint32_t step) {
    return sixteen * 16 * 128 + step / 4 * kPolicy.tile_keys * 128;
  }

  __device__ __forceinline__ void load_queries(uint32_t first) {
    const uint32_t slab = ptx::shared_address(shared_.slabs[stream_]);
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
      for (uint32_t step = 0; step < kSteps; step += 2) {
        uint32_t q[4];
        ptx::load_matrices(q,
                           slab + swizzled<kSlabRows>(first * kHalfSlabRows + 8 * e + lane_ % 8, 2 * step + lane_ / 8));
        q_[e][step][0] = q[0], q_[e][step][1] = q[1];
        q_[e][step + 1][0] = q[2], q_[e][step + 1][1] = q[3];
      }
    }
  }

  __device__ __forceinline__ void see(const Job& job, uint32_t first, uint32_t rows, uint32_t key_end) {
    begin_max_ = 0, end_min_ = ~0u;
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t row = min(8 * e + 2 * (lane_ % 4) + i, rows - 1);
        const SlabToken& token = shared_.stream[stream_].tokens[first * kHalfSlabRows + call_.token_of_row(row)];
        const Visible visible = visible_keys(call_, token.position);
        begin_[e][i] = visible.begin, end_[e][i] = min(visible.end, key_end);
        begin_max_ = max(begin_max_, begin_[e][i]), end_min_ = min(end_min_, end_[e][i]);
      }
    }
    begin_max_ = __reduce_max_sync(~0u, begin_max_);
    end_min_ = __reduce_min_sync(~0u, end_min_);
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) o_[step][e][i] = 0;
      }
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) m_[e][i] = -INFINITY, l_[e][i] = 0;
    }
  }

  // This warp's keys of the tile that begins at `tile`; gives back the slot of keys, not yet that of values.
  __device__ __forceinline__ void attend_tile(uint32_t tile, uint32_t key_end, SlotReader<kPolicy>& slots,
                                              bool is_last) {
    const uint32_t begin = tile + warp_ * kKeysWarp;
    const bool is_busy = warp_ < kWarpsBusy && begin < key_end;
    const unsigned char* keys = slots.wait_next();
    float s[kSixteens][kEights][4];
    if (is_busy) multiply_keys(ptx::shared_address(keys), s);
    __syncwarp();
    slots.give_back_by_warp(slots.last(), lane_);
    uint32_t weights[kSixteens][kEights][2];
    if (is_busy) weigh(begin, s, weights);
    unsigned char* values = slots.wait_next();
    if (!is_busy) return;
    if (is_last) clear_beyond(values, key_end - begin);
    multiply_values(ptx::shared_address(values), weights);
    __syncwarp();
  }

  __device__ __forceinline__ void multiply_keys(uint32_t keys, float (&s)[kSixteens][kEights][4]) {
#pragma unroll
    for (uint32_t g = 0; g < kSixteens; ++g) {
#pragma unroll
      for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) s[g][e][i] = 0;
      }
    }
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step) {
#pragma unroll
      for (uint32_t g = 0; g < kSixteens; ++g) {
        uint32_t a[4];
        ptx::load_matrices(a, keys + keys_at_[step % 4] + beside(g, step));
#pragma unroll
        for (uint32_t e = 0; e < kEights; ++e) ptx::multiply<Element>(s[g][e], a, q_[e][step][0], q_[e][step][1]);
      }
    }
  }

  __device__ __forceinline__ void multiply_values(uint32_t values, const uint32_t (&weights)[kSixteens][kEights][2]) {
#pragma unroll
    for (uint32_t g = 0; g < kSixteens; ++g) {
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
        uint32_t a[4];
        ptx::load_transposed(a, values + values_at_[step % 4] + beside(g, step));
#pragma unroll
        for (uint32_t e = 0; e < kEights; ++e) {
          ptx::multiply<Element>(o_[step][e], a, weights[g][e][0], weights[g][e][1]);
        }
      }
    }
  }

  // Scores become weights; what was summed before is rescaled. begin: the first of this warp's keys.
  __device__ __forceinline__ void weigh(uint32_t begin, float (&s)[kSixteens][kEights][4],
                                        uint32_t (&weights)[kSixteens][kEights][2]) {
    if (__builtin_expect(call_.softcap > 0, 0)) soften(s);
    if (begin < begin_max_ || begin + kKeysWarp > end_min_) mask(begin, s);
    const float scale = call_.softcap > 0 ? 1.0f : call_.score_scale;
    float rescale[kEights][2];
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        float largest = fmaxf(s[0][e][i], s[0][e][i + 2]);
#pragma unroll
        for (uint32_t g = 1; g < kSixteens; ++g) largest = fmaxf(largest, fmaxf(s[g][e][i], s[g][e][i + 2]));
        const float m = fmaxf(m_[e][i], column_max(largest) * scale), base = m == -INFINITY ? 0 : m;
        rescale[e][i] = ptx::exp2(m_[e][i] - base);
        m_[e][i] = m;
        float sum = 0;
#pragma unroll
        for (uint32_t g = 0; g < kSixteens; ++g) {
#pragma unroll
          for (uint32_t j = i; j < 4; j += 2) sum += s[g][e][j] = ptx::exp2(__fmaf_rn(s[g][e][j], scale, -base));
        }
        l_[e][i] = __fmaf_rn(l_[e][i], rescale[e][i], sum);
      }
#pragma unroll
      for (uint32_t g = 0; g < kSixteens; ++g) {
        weights[g][e][0] = ptx::transpose(pack<Element>(s[g][e][0], s[g][e][1]));
        weights[g][e][1] = ptx::transpose(pack<Element>(s[g][e][2], s[g][e][3]));
      }
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) o_[step][e][i] *= rescale[e][i % 2];
      }
    }
  }

  __device__ void soften(float (&s)[kSixteens][kEights][4]) const {
#pragma unroll
    for (uint32_t g = 0; g < kSixteens; ++g) {
#pragma unroll
      for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) s[g][e][i] = ptx::tanh(s[g][e][i] * call_.score_scale) * call_.softcap;
      }
    }
  }

  __device__ void mask(uint32_t begin, float (&s)[kSixteens][kEights][4]) const {
#pragma unroll
    for (uint32_t g = 0; g < kSixteens; ++g) {
#pragma unroll
      for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t key = begin + 16 * g + i / 2 * 8 + lane_ / 4;
          if (key < begin_[e][i % 2] || key >= end_[e][i % 2]) s[g][e][i] = -INFINITY;
        }
      }
    }
  }

  // Of all keys of a row: over the lanes that differ in lane / 4.
  __device__ static float column_max(float x) {
#pragma unroll
    for (uint32_t offset = 4; offset < kWarp; offset *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
    return x;
  }
  __device__ static float column_sum(float x) {
#pragma unroll
    for (uint32_t offset = 4; offset < kWarp; offset *= 2) x += __shfl_xor_sync(~0u, x, offset);
    return x;
  }

  // Values behind the last key may be anything, NaN too: their weight is 0, but 0 * NaN is not. keys: of this warp's.
  __device__ void clear_beyond(unsigned char* values, uint32_t keys) const {
    constexpr uint32_t kPieces = kPolicy.panels * 8;
    if (keys >= kKeysWarp) return;
#pragma unroll 1
    for (uint32_t i = lane_; i < (kKeysWarp - keys) * kPieces; i += kWarp) {
      const uint32_t to = swizzled<kPolicy.tile_keys>(warp_ * kKeysWarp + keys + i / kPieces, i % kPieces);
      *reinterpret_cast<uint4*>(values + to) = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
  }

  __device__ float* sums_in(const SlotReader<kPolicy>& slots) const {
    return reinterpret_cast<float*>(slots.place(slots.last()));
  }
  __device__ float2* states_in(uint32_t first) const {
    return reinterpret_cast<float2*>(shared_.slabs[stream_] + first * kHalfSlabRows * 128);
  }

  // This warp's states to where all warps find them, once all have read what lay there.
  __device__ __forceinline__ void spread(uint32_t first, const SlotReader<kPolicy>& slots) {
    float* const sums = sums_in(slots);
    float2* const states = states_in(first);
    sync();
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const float l = column_sum(l_[e][i]);
        const uint32_t row = 8 * e + 2 * (lane_ % 4) + i;
        if (lane_ < 4) states[warp_ * kRows + row] = make_float2(m_[e][i], l);
        if (warp_ >= kWarpsBusy) continue;
        const uint32_t begin = (warp_ * kRows + row) * kPolicy.head_dim + lane_ / 4;
#pragma unroll
        for (uint32_t eight = 0; eight < 2 * kSteps; ++eight) {
          // sum_at(warp_, row, 8 * eight + lane_ / 4), so that the compiler sees four addresses and what lies beside them
          sums[begin + (eight % 4 ^ row / 2 % 4) * 8 + eight / 4 * 32] = o_[eight / 2][e][2 * (eight % 2) + i];
        }
      }
    }
    sync();
  }

  // Eights of columns change places, so that the lanes of a store meet in no bank.
  __device__ static uint32_t sum_at(uint32_t warp, uint32_t row, uint32_t column) {
    return (warp * kRows + row) * kPolicy.head_dim + (column ^ row / 2 % 4 * 8);
  }

  __device__ void sync() const {
    ptx::sync_named(1 + stream_, kWarpgroup);
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t stream_, lane_, warp_;  // warp of the warpgroup
  uint32_t q_[kEights][kSteps][2];
  float o_[kSteps][kEights][4];
  float m_[kEights][2];  // largest score of this warp's keys, times score_scale; -inf: no key yet
  float l_[kEights][2];  // sum of the weights of this lane's keys
  uint32_t begin_[kEights][2], end_[kEights][2];  // visible keys
  uint32_t begin_max_, end_min_;                  // of all rows: keys between need no mask
  // Bytes from the beginning of a slot to what this lane reads of the first 16 keys in the first panel, by step.
  uint32_t keys_at_[4], values_at_[4];
};

}  // namespace headwater::backend::cuda
