// From the state of a job's rows to where it goes: folded cut by cut in invariant mode, then out or partial, and the merge of
// the tokens that are complete.
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

  __device__ Finisher(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call),
        stream_(shared.stream[stream]),
        stream_index_(stream),
        thread_(thread),
        lane_(thread % kWarp),
        warp_(thread / kWarp) {}

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
      const uint32_t token = stream_.tokens[first][call_.token_of_row(row(h))];
      const uint64_t offset = out_offset(call_, token, q_head(job, row(h)));
      if (call_.is_wide) {
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
      const uint64_t at = partial_row(call_, slot + call_.token_of_row(row(h)), q_head(job, row(h)));
      write_floats(call_.partial_values + at * call_.head_dim, h, state);
      if (lane_ % 4 == 0) call_.partial_lse2[at] = lse2[h];
    }
  }
  // A slot for which there is nothing: what it would hold is part of another one.
  __device__ void write_empty(const Job& job, uint32_t slot) {
    for (uint32_t r = thread_; r < job.tokens * call_.group; r += kWarpgroup) {
      call_.partial_lse2[partial_row(call_, slot + call_.token_of_row(r), q_head(job, r))] = -INFINITY;
    }
  }

  // Ahead of arrive(): how many slots this thread's token waits for.
  __device__ void expect(const Job& job) {
    if (thread_ >= job.tokens || (job.flags & attention::kDirect) != 0) return;
    wanted_ = slots_of(job.token_begin + thread_);
    ptx::prefetch_l2(arrived(job.token_begin + thread_, job.kv_head));
  }

  // All partials of the job's tokens that come from this job are written: `slots` a token. A job of one token that completes
  // it merges it at once, beside the loads of the next job; what a job of many completes is left to merge_rest().
  __device__ void arrive(const Job& job, uint32_t slots) {
    __threadfence();
    sync();
    if (thread_ < job.tokens) {
      uint32_t* count = arrived(job.token_begin + thread_, job.kv_head);
      const bool is_last = atomicAdd(count, slots) + slots == wanted_;
      if (thread_ == 0) stream_.completed = job.tokens == 1 && is_last && atomicCAS(count, wanted_, kMerged) == wanted_;
    }
    if (job.tokens > 1) return;
    sync();
    if (stream_.completed == 0) return;
    __threadfence();
    merge_token(job.token_begin, job.kv_head);
  }

  // When no jobs are left: the tokens of this warpgroup, every (number of streams)th token and KV head, each as soon as its
  // partials are there. All streams of the grid run at the same time, so what is waited for comes. Tokens without any key
  // have no partials; their rows are written here too.
  __device__ void merge_rest() {
    const uint32_t units = call_.header->tokens * call_.kv_heads, stride = gridDim.x * kStreams;
    for (uint32_t first = blockIdx.x * kStreams + stream_index_; first < units; first += stride * kWarpgroup) {
      const uint32_t unit = first + thread_ * stride;
      const Pending pending = unit < units ? wait_for(unit) : Pending::kNothing;
      const uint32_t count = min((units - first + stride - 1) / stride, kWarpgroup);
      for (uint32_t i = 0; i < count; ++i) {
        sync();
        if (thread_ == i) stream_.completed = pending == Pending::kMerge;
        sync();
        if (stream_.completed == 0) continue;
        const uint32_t at = first + i * stride;
        merge_token(at / call_.kv_heads, at % call_.kv_heads);
      }
    }
  }

 private:
  __device__ uint32_t q_head(const Job& job, uint32_t r) const {
    return job.kv_head * call_.group + r - call_.token_of_row(r) * call_.group;
  }
  __device__ uint32_t row(uint32_t h) const {
    return warp_ * 16 + h * 8 + lane_ / 4;
  }
  __device__ uint32_t column(uint32_t i) const {
    return 2 * i + 2 * (lane_ % 4);
  }  // of o[i], i a multiple of 4
  __device__ void sync() const {
    ptx::sync_named(1 + stream_index_, kWarpgroup);
  }
  __device__ uint32_t* arrived(uint32_t position, uint32_t kv_head) const {
    return call_.arrived + uint64_t{position} * call_.kv_heads + kv_head;
  }
  __device__ uint32_t slots_of(uint32_t position) const {
    return call_.merge_indptr[position + 1] - call_.merge_indptr[position];
  }

  static constexpr uint32_t kMerged = ~0u;  // of the count of arrived slots
  enum class Pending : uint32_t { kNothing, kMerge };

  // Waits until a token of a KV head has all its partials, or was merged; resets its count for the next launch.
  __device__ Pending wait_for(uint32_t unit) const {
    const uint32_t position = unit / call_.kv_heads, wanted = slots_of(position);
    if (wanted == 0) return call_.token_empty[position] != 0 ? Pending::kMerge : Pending::kNothing;
    uint32_t* count = arrived(position, unit % call_.kv_heads);
    for (;;) {
      const uint32_t seen = *static_cast<volatile uint32_t*>(count);
      if (seen == kMerged) {
        *count = 0;
        return Pending::kNothing;
      }
      // The job that has just completed it may be about to take it.
      if (seen == wanted && atomicCAS(count, wanted, 0) == wanted) {
        __threadfence();
        return Pending::kMerge;
      }
    }
  }

  __device__ void merge_token(uint32_t position, uint32_t kv_head) const {
    RowMerger<Element, kPolicy.head_dim, kInvariant> merger(call_, lane_);
    for (uint32_t head = warp_; head < call_.group; head += kWarpgroup / kWarp) {
      merger.merge(position, kv_head * call_.group + head);
    }
  }

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
  uint32_t stream_index_, thread_, lane_, warp_;  // thread and warp of the warpgroup
  uint32_t wanted_ = 0;
};

}  // namespace headwater::backend::cuda
