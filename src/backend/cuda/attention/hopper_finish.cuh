// From finished rows to where they go: the output or a partial, which is counted in (hopper_merge.cuh waits for the count).
// Every warp does this for its own rows, whatever the other warps do. Counting waits until what the warp wrote has arrived. So
// a job's partials are counted in at the end of the next one, when they have, or behind the last job.
#pragma once

#include "backend/cuda/attention/hopper_attend.cuh"
#include "backend/cuda/attention/hopper_few.cuh"
#include "backend/cuda/attention/rows.cuh"

namespace headwater::backend::cuda {

template <typename Element, AttendPolicy kPolicy>
class Finisher {
 public:
  using Shared = HopperShared<kPolicy>;
  using State = RowsState<kPolicy.head_dim>;
  static constexpr uint32_t kValues = State::kValues;
  static constexpr uint32_t kLanes = kPolicy.head_dim < 128 ? kPolicy.head_dim / 8 : 16;
  static constexpr uint32_t kRowsWarp = kWarp / kLanes;  // at a time
  using Row = SpreadRow<Element, kPolicy.head_dim, kLanes>;

  __device__ Finisher(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call), stream_(shared.stream[stream]), lane_(thread % kWarp), warp_(thread / kWarp) {}

  // ---- many rows

  __device__ static void normalise(State& state, float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const bool is_seen = state.l[h] > 0;
      const float inverse = is_seen ? __fdividef(1, state.l[h]) : 0;
      lse2[h] = is_seen ? state.m[h] + ptx::log2(state.l[h]) : -INFINITY;
#pragma unroll
      for (uint32_t i = 2 * h; i < kValues; i += 4) {
        state.o[i] *= inverse;
        state.o[i + 1] *= inverse;
      }
    }
  }

  // The states of this thread's rows before any key.
  __device__ void sinks_of(const Job& job, float (&lse2)[2]) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      lse2[h] = row(h) < job.tokens * call_.group ? sink_lse2(call_, q_head(job, row(h))) : -INFINITY;
    }
  }
  __device__ void add_sinks(const Job& job, State& state, float (&lse2)[2]) const {
    if (call_.sinks == nullptr) return;
    float sinks[2];
    sinks_of(job, sinks);
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const Shares shares = shares_of(sinks[h], lse2[h]);
      lse2[h] = shares.lse2;
#pragma unroll
      for (uint32_t i = 2 * h; i < kValues; i += 4) {
        state.o[i] *= shares.second;
        state.o[i + 1] *= shares.second;
      }
    }
  }
  __device__ static void fold(State& folded, float (&folded_lse2)[2], const State& state, const float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const Shares shares = shares_of(folded_lse2[h], lse2[h]);
      folded_lse2[h] = shares.lse2;
      if (is_empty(lse2[h])) continue;
#pragma unroll
      for (uint32_t i = 2 * h; i < kValues; i += 4) {
        folded.o[i] = merged(shares, folded.o[i], state.o[i]);
        folded.o[i + 1] = merged(shares, folded.o[i + 1], state.o[i + 1]);
      }
    }
  }

  // Normalised rows to the output. first: half of the slab where the rows begin.
  __device__ void write_out(const Job& job, uint32_t first, const State& state, const float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (row(h) >= job.tokens * call_.group) continue;
      const uint32_t token = stream_.tokens[first * kHalfSlabRows + call_.token_of_row(row(h))].token;
      const uint64_t offset = out_offset(call_, token, q_head(job, row(h)));
      if (call_.out_is_wide) {
        write_floats(static_cast<float*>(call_.out) + offset, h, state);
      } else {
#pragma unroll
        for (uint32_t i = 0; i < kValues; i += 4) {
          if (column(i) >= call_.head_dim) continue;
          *reinterpret_cast<uint32_t*>(static_cast<Element*>(call_.out) + offset + column(i)) =
              pack<Element>(state.o[i + 2 * h], state.o[i + 2 * h + 1]);
        }
      }
      if (lane_ % 4 == 0) store_lse2(call_, token, q_head(job, row(h)), lse2[h]);
    }
  }

  // Normalised rows to the partial slots slot, slot + 1, ... of the job's tokens.
  __device__ void write_partial(const Job& job, uint32_t slot, const State& state, const float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (row(h) >= job.tokens * call_.group) continue;
      float* const to = partial_row(call_, slot + call_.token_of_row(row(h)), q_head(job, row(h)));
      write_floats(to, h, state);
      if (lane_ % 4 == 0) to[call_.head_dim] = lse2[h];
    }
  }

  // This warp's rows have `slots` partials more.
  __device__ void leave_unsettled(const Job& job, uint32_t slots) {
    leave_unsettled(job, warp_ * 16 + lane_, lane_ < 16, slots);
  }

  // Counts in the partials of the job before.
  __device__ void settle() {
    __syncwarp();
    if (unsettled_ != kNone) ptx::add_in_order(call_.arrived + unsettled_, unsettled_slots_);
    unsettled_ = kNone;
  }

  // ---- few rows

  template <typename Few>
  __device__ __forceinline__ void finish(const Job& job, uint32_t first, uint32_t rows, const Few& few,
                                         const SlotReader<kPolicy>& slots) {
    settle();
    const bool folds = (job.flags & attention::kFold) != 0, is_direct = (job.flags & attention::kDirect) != 0;
#pragma unroll 1
    for (uint32_t round = 0; few_row(round, 0) < rows; ++round) {
      const bool is_there = few_row(round, lane_ / kLanes) < rows;
      const uint32_t row = min(few_row(round, lane_ / kLanes), rows - 1), token = call_.token_of_row(row);
      Row sum = few.template gather<Row>(first, row, slots);
      const uint32_t batch_token = stream_.tokens[first * kHalfSlabRows + token].token;
      if (few_row(round + 1, 0) >= rows) few.release(slots);
      if (folds && call_.sinks != nullptr) {
        const Shares shares = shares_of(sink_lse2(call_, q_head(job, row)), sum.lse2);
        sum.lse2 = shares.lse2;
        sum.scale(shares.second);
      }
      if (is_there && is_direct) sum.write_out(call_, batch_token, q_head(job, row), lane_);
      if (is_there && !is_direct) sum.write_partial(call_, job.slot + token, q_head(job, row), lane_);
    }
    if (few_row(0, 0) >= rows) few.release(slots);
    if (!is_direct) leave_unsettled(job, few_row(lane_ / kRowsWarp, lane_ % kRowsWarp), true, 1);
  }

 private:
  __device__ uint32_t few_row(uint32_t round, uint32_t n) const {
    return (round * kWarps + warp_) * kRowsWarp + n;
  }
  // Row r, in this lane.
  __device__ void leave_unsettled(const Job& job, uint32_t r, bool is_row, uint32_t slots) {
    if (!is_row || r >= job.tokens * call_.group) return;
    const uint32_t token = call_.token_of_row(r);
    unsettled_ = arrived_at(call_, job, token, r - token * call_.group);
    unsettled_slots_ = slots;
  }
  __device__ uint32_t q_head(const Job& job, uint32_t r) const {
    return job.kv_head * call_.group + r - call_.token_of_row(r) * call_.group;
  }
  __device__ uint32_t row(uint32_t h) const {
    return warp_ * 16 + h * 8 + lane_ / 4;
  }
  __device__ uint32_t column(uint32_t i) const {
    return 2 * i + 2 * (lane_ % 4);
  }  // of o[i], i a multiple of 4

  __device__ void write_floats(float* to, uint32_t h, const State& state) const {
#pragma unroll
    for (uint32_t i = 0; i < kValues; i += 4) {
      if (column(i) >= call_.head_dim) continue;
      *reinterpret_cast<float2*>(to + column(i)) =
          h == 0 ? make_float2(state.o[i], state.o[i + 1]) : make_float2(state.o[i + 2], state.o[i + 3]);
    }
  }

  const AttendCall& call_;
  HopperStream<kPolicy>& stream_;
  uint32_t lane_, warp_;  // warp of the warpgroup
  static constexpr uint32_t kNone = ~0u;
  uint32_t unsettled_ = kNone;  // of AttendCall::arrived: this lane's row of the last job
  uint32_t unsettled_slots_ = 0;
};

}  // namespace headwater::backend::cuda
