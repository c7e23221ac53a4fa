// From the state of a slab's rows to where it goes: the other warpgroup's half joined, folded cut by cut in invariant mode,
// then out or partial, and the merge of the tokens that are complete.
#pragma once

#include "backend/cuda/attention/hopper_attend.cuh"
#include "backend/cuda/attention/merge.cuh"

namespace headwater::backend::cuda {

template <typename Element, AttendPolicy kPolicy, bool kInvariant>
class Finisher {
 public:
  using Shared = HopperShared<kPolicy>;
  using State = RowsState<kPolicy.head_dim>;
  static constexpr uint32_t kValues = State::kValues;

  __device__ Finisher(const AttendCall& call, Shared& shared, uint32_t warpgroup, uint32_t thread)
      : call_(call),
        shared_(shared),
        warpgroup_(warpgroup),
        thread_(thread),
        lane_(thread % kWarp),
        warp_(thread / kWarp) {}

  // Both warpgroups of a split item, neither of which reads the slab any more: one gives, the other takes and joins. The
  // slab's own memory carries the values, half of them at a time where there are more than 32 rows.
  __device__ void give(uint32_t place, uint32_t rows, const State& state) {
    float* exchange = reinterpret_cast<float*>(shared_.slabs[place]);
    meet();
    if (warp_ * 16 < rows && lane_ % 4 == 0) {
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        shared_.exchange_m[row(h)] = state.m[h];
        shared_.exchange_l[row(h)] = state.l[h];
      }
    }
    const uint32_t width = rows > 32 ? kWarpgroup : 64;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (half == 1 && rows > 32) meet();  // the first half is taken
      if (warp_ * 16 < rows) {
#pragma unroll
        for (uint32_t i = 0; i < kValues / 2; ++i) {
          exchange[(rows > 32 ? i : i + half * kValues / 2) * width + thread_] = state.o[half * kValues / 2 + i];
        }
      }
      if (half == 1 || rows > 32) meet();
    }
  }
  __device__ void take(uint32_t place, uint32_t rows, State& state) {
    const float* exchange = reinterpret_cast<const float*>(shared_.slabs[place]);
    meet();
    const uint32_t width = rows > 32 ? kWarpgroup : 64;
    float mine[2] = {1, 1}, others[2] = {0, 0};
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (half == 1 && rows > 32) meet();
      if (half == 1 || rows > 32) meet();
      if (half == 0 && rows <= 32) continue;  // both halves are there after the next meeting
      if (warp_ * 16 >= rows) continue;
      if (half == 0 || rows <= 32) join_weights(state, mine, others);
#pragma unroll
      for (uint32_t i = 0; i < kValues; ++i) {
        if (rows > 32 && i / (kValues / 2) != half) continue;
        const uint32_t at = rows > 32 ? i - half * kValues / 2 : i;
        state.o[i] = state.o[i] * mine[i / 2 % 2] + exchange[at * width + thread_] * others[i / 2 % 2];
      }
    }
  }

  __device__ static void normalise(State& state, float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const bool is_seen = state.l[h] > 0;
      const float inverse = is_seen ? 1 / state.l[h] : 0;
      lse2[h] = is_seen ? state.m[h] + log2f(state.l[h]) : -INFINITY;
#pragma unroll
      for (uint32_t i = 2 * h; i < kValues; i += 4) {
        state.o[i] *= inverse;
        state.o[i + 1] *= inverse;
      }
    }
  }

  // The states of this thread's rows before any key.
  __device__ void sinks_of(const Job& job, uint32_t rows, float (&lse2)[2]) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      lse2[h] = row(h) < rows ? sink_lse2(call_, job.kv_head * call_.group + row(h) % call_.group) : -INFINITY;
    }
  }
  __device__ void add_sinks(const Job& job, uint32_t rows, State& state, float (&lse2)[2]) const {
    if (call_.sinks == nullptr) return;
    float sinks[2];
    sinks_of(job, rows, sinks);
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

  // Normalised rows to the output.
  __device__ void write_out(const Job& job, uint32_t place, uint32_t rows, const State& state, const float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (row(h) >= rows) continue;
      const uint32_t token = shared_.tokens[place][row(h) / call_.group];
      const uint32_t q_head = job.kv_head * call_.group + row(h) % call_.group;
      const uint64_t offset = out_offset(call_, token, q_head);
#pragma unroll
      for (uint32_t i = 0; i < kValues; i += 4) {
        if (column(i) < call_.head_dim)
          store_out<Element>(call_, offset + column(i), state.o[i + 2 * h], state.o[i + 2 * h + 1]);
      }
      if (lane_ % 4 == 0) store_lse2(call_, token, q_head, lse2[h]);
    }
  }

  // Normalised rows to the slots slot, slot + 1, ... of the slab's tokens.
  __device__ void write_partial(const Job& job, uint32_t slot, uint32_t rows, const State& state,
                                const float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (row(h) >= rows) continue;
      const uint32_t q_head = job.kv_head * call_.group + row(h) % call_.group;
      const uint64_t at = partial_row(call_, slot + row(h) / call_.group, q_head);
#pragma unroll
      for (uint32_t i = 0; i < kValues; i += 4) {
        if (column(i) >= call_.head_dim) continue;
        *reinterpret_cast<float2*>(call_.partial_values + at * call_.head_dim + column(i)) =
            make_float2(state.o[i + 2 * h], state.o[i + 2 * h + 1]);
      }
      if (lane_ % 4 == 0) call_.partial_lse2[at] = lse2[h];
    }
  }
  // A slot for which there is nothing: what it would hold is part of another one.
  __device__ void write_empty(const Job& job, uint32_t slot, uint32_t rows) {
    for (uint32_t r = thread_; r < rows; r += kWarpgroup) {
      call_.partial_lse2[partial_row(call_, slot + r / call_.group, job.kv_head * call_.group + r % call_.group)] =
          -INFINITY;
    }
  }

  // All partials of the slab's tokens [position, position + tokens) that come from this job are written.
  __device__ void arrive(const Job& job, uint32_t position, uint32_t tokens, uint32_t slots) {
    __threadfence();
    sync();
    if (thread_ == 0) shared_.complete[warpgroup_] = 0;
    sync();
    if (thread_ < tokens && arrive_partials(call_, position + thread_, job.kv_head, slots)) {
      __threadfence();
      atomicOr(reinterpret_cast<unsigned long long*>(&shared_.complete[warpgroup_]), 1ull << thread_);
    }
    sync();
    uint64_t complete = shared_.complete[warpgroup_];
    if (complete == 0) return;
    RowMerger<Element, kPolicy.head_dim, kInvariant> merger(call_, lane_);
    for (uint32_t n = 0; complete != 0; complete &= complete - 1) {
      const uint32_t token = __ffsll(static_cast<long long>(complete)) - 1;
      for (uint32_t head = 0; head < call_.group; ++head, ++n) {
        if (n % (kWarpgroup / kWarp) == warp_) merger.merge(position + token, job.kv_head * call_.group + head);
      }
    }
  }

 private:
  __device__ uint32_t row(uint32_t h) const {
    return warp_ * 16 + h * 8 + lane_ / 4;
  }
  __device__ uint32_t column(uint32_t i) const {
    return 2 * i + 2 * (lane_ % 4);
  }  // of o[i], i a multiple of 4
  __device__ void sync() const {
    ptx::sync_named(kBarrierWarpgroup + 1 + warpgroup_, kWarpgroup);
  }
  __device__ void meet() const {
    ptx::sync_named(kBarrierAttending, kAttending * kWarpgroup);
  }

  __device__ void join_weights(State& state, float (&mine)[2], float (&others)[2]) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float other_m = shared_.exchange_m[row(h)], other_l = shared_.exchange_l[row(h)];
      const float m = fmaxf(state.m[h], other_m);
      mine[h] = m == -INFINITY ? 1 : ptx::exp2(state.m[h] - m);
      others[h] = m == -INFINITY ? 0 : ptx::exp2(other_m - m);
      state.m[h] = m;
      state.l[h] = state.l[h] * mine[h] + other_l * others[h];
    }
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t warpgroup_, thread_, lane_, warp_;
};

}  // namespace headwater::backend::cuda
