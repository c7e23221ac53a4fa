// From finished rows to where they go: out or partial, and the merge of the rows that are complete. Every warp does this for
// its own rows, whatever the other warps do.
#pragma once

#include "backend/cuda/attention/hopper_attend.cuh"
#include "backend/cuda/attention/hopper_few.cuh"
#include "backend/cuda/attention/merge.cuh"

namespace headwater::backend::cuda {

// A row that a lane counts in, or that is left to it.
struct LaneRow {
  bool is_there;
  uint32_t token_of_job;
  uint32_t* arrived;  // slots written so far, of a plan position and query head
  MergeRow merge;
};

template <typename Element, AttendPolicy kPolicy, bool kInvariant>
class Finisher {
 public:
  using Shared = HopperShared<kPolicy>;
  using State = RowsState<kPolicy.head_dim>;
  static constexpr uint32_t kValues = State::kValues;
  static constexpr uint32_t kLanes = kPolicy.head_dim < 128 ? kPolicy.head_dim / 8 : 16;
  static constexpr uint32_t kRowsWarp = kWarp / kLanes;  // at a time
  using Row = SpreadRow<Element, kPolicy.head_dim, kLanes>;

  // Rows that can be merged now, one a lane. `own`: the state of own_slot of each, not in memory; the n-th row's in the
  // n-th lanes that hold a row together.
  struct Complete {
    uint32_t lanes = 0;  // a bit each
    uint32_t own_slot = ~0u;
    Row own;
  };

  // Of the count of arrived slots, beyond what slots can add up to: the row was merged; may be merged.
  static constexpr uint32_t kMerged = ~0u - 1, kComplete = ~0u;

  __device__ Finisher(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call),
        stream_(shared.stream[stream]),
        lane_(thread % kWarp),
        warp_(thread / kWarp),
        is_rest_merged_(call.header->items_many > 0) {}

  __device__ bool is_rest_merged() const { return is_rest_merged_; }

  // Of jobs of many rows: lane l < 16 counts row 16 warp + l in.
  __device__ LaneRow row_of_many(const Job& job, uint32_t first) const {
    return lane_row(job, first, lane_ < 16 ? warp_ * 16 + lane_ : ~0u);
  }
  // Of jobs of few rows: in round r, lanes n * kLanes and behind hold row few_row(r, n), which lane r * kRowsWarp + n counts in.
  __device__ LaneRow row_of_few(const Job& job, uint32_t first) const {
    return lane_row(job, first, few_row(lane_ / kRowsWarp, lane_ % kRowsWarp));
  }

  // ---- many rows

  __device__ static void normalise(State& state, float (&lse2)[2]) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const bool is_seen = state.l[h] > 0;
      const float inverse = is_seen ? __fdividef(1, state.l[h]) : 0;
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
      const uint32_t token = stream_.tokens[first * kHalfSlabRows + call_.token_of_row(row(h))].token;
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

  // ---- few rows

  // Rows to the output, or to the job's first slot. What they complete; if it is all that was there, it was not written.
  template <typename Few>
  __device__ __forceinline__ Complete finish(const Job& job, uint32_t first, uint32_t rows, const Few& few,
                                             const LaneRow& mine, uint32_t arrived_before,
                                             const SlotReader<kPolicy>& slots) {
    const uint32_t own_slots = slots_of_item(call_, job.flags, job.key_begin, job.key_begin + job.key_count);
    const bool folds = (job.flags & attention::kFold) != 0, is_direct = (job.flags & attention::kDirect) != 0;
    Complete complete;
    bool completes = false;
#pragma unroll 1
    for (uint32_t round = 0; few_row(round, 0) < rows; ++round) {
      const uint32_t row = min(few_row(round, lane_ / kLanes), rows - 1), token = call_.token_of_row(row);
      Row& sum = complete.own;
      sum = few.template gather<Row>(first, row, slots);
      const uint32_t batch_token = stream_.tokens[first * kHalfSlabRows + token].token;
      if (few_row(round + 1, 0) >= rows) few.release(slots);
      if (folds && call_.sinks != nullptr) {
        const Shares shares = shares_of(sink_lse2(call_, q_head(job, row)), sum.lse2);
        sum.lse2 = shares.lse2;
        sum.scale(shares.second);
      }
      completes = round == 0 && rows <= kRowsWarp * kWarps && !is_direct && own_slots == 1 &&
                  __all_sync(~0u, !mine.is_there || arrived_before + 1 == mine.merge.count);
      const bool is_there = few_row(round, lane_ / kLanes) < rows;
      if (!is_there || completes) {
      } else if (is_direct) {
        sum.write_out(call_, batch_token, q_head(job, row), lane_);
      } else {
        sum.write_partial(call_, job.slot + token, q_head(job, row), lane_);
      }
    }
    if (few_row(0, 0) >= rows) few.release(slots);
    if (is_direct) return complete;
    if (completes) {
      __threadfence();
      complete.own_slot = job.slot + mine.token_of_job;
      complete.lanes = __ballot_sync(~0u, mine.is_there);
      return complete;
    }
    write_empty(job, mine, own_slots);
    complete.lanes = __ballot_sync(~0u, arrive(mine, own_slots));
    return complete;
  }

  // ---- both

  // Slots for which there is nothing: what they would hold is part of the first one. By the lanes that count rows in.
  __device__ void write_empty(const Job& job, const LaneRow& mine, uint32_t slots) const {
    if (!mine.is_there) return;
    const uint32_t slot = job.slot + mine.token_of_job;
    for (uint32_t c = 1; c < slots; ++c) {
      call_.partial_lse2[partial_row(call_, slot + c * job.item_tokens, mine.merge.q_head)] = -INFINITY;
    }
  }

  // This warp's partials are written, `slots` a row. Whether the lane's row is complete with them.
  __device__ bool arrive(const LaneRow& mine, uint32_t slots) const {
    __syncwarp();
    return mine.is_there && ptx::add_in_order(mine.arrived, slots) + slots == mine.merge.count;
  }
  // The same for jobs of many rows: what they complete is left to merge_rest().
  __device__ void arrive_for_others(const LaneRow& mine, uint32_t slots) const {
    if (arrive(mine, slots)) ptx::write_in_order(mine.arrived, kComplete);
  }

  // When no jobs are left and the plan has some of many rows: a row.
  __device__ LaneRow row_of_rest(uint32_t row, bool is_there) const {
    const uint32_t position = row / call_.q_heads;
    const MergeRow merge{call_.token_order[position], row - position * call_.q_heads, call_.merge_indptr[position],
                         slots_of_token(call_, position)};
    return {is_there && merge.count > 0, 0, call_.arrived + row, merge};
  }
  // Until it is complete or was merged. What is waited for comes as long as all blocks of the grid come to run: a block fills a
  // multiprocessor and waits for nobody but them (Attention::attend says what that asks of callers).
  __device__ Complete wait_for(const LaneRow& mine) const {
    bool is_complete = false;
    if (mine.is_there) {
      uint32_t seen;
      while ((seen = *static_cast<const volatile uint32_t*>(mine.arrived)) < kMerged) {
      }
      is_complete = seen == kComplete;
      *mine.arrived = 0;  // for the next launch
    }
    __threadfence();
    Complete complete;
    complete.lanes = __ballot_sync(~0u, is_complete);
    return complete;
  }

  // Merges what is complete.
  __device__ __forceinline__ void merge(const LaneRow& mine, const Complete& complete) const {
    if (complete.lanes == 0) return;
    __syncwarp();  // other lanes read what one has seen arrive
    const RowMerger<Element, kPolicy.head_dim, kLanes> merger(call_, lane_);
    uint32_t left = complete.lanes;
    // The next rows, the n-th of those left for the n-th that are merged together, and the first slots of each.
    struct Rows {
      MergeRow row;
      uint32_t count, own_slot, slot;
    };
    const auto take = [&] {
      uint32_t holder = __ffs(static_cast<int>(left)) - 1, count = 0;
      for (; count < kRowsWarp && left != 0; ++count, left &= left - 1) {
        if (count <= lane_ / kLanes) holder = __ffs(static_cast<int>(left)) - 1;
      }
      Rows rows{{__shfl_sync(~0u, mine.merge.token, holder), __shfl_sync(~0u, mine.merge.q_head, holder),
                 __shfl_sync(~0u, mine.merge.begin, holder), __shfl_sync(~0u, mine.merge.count, holder)},
                count,
                __shfl_sync(~0u, complete.own_slot, holder)};
      rows.slot = merger.slot_of(rows.row, 0);
      return rows;
    };
    for (Rows next = take(); next.count != 0;) {
      const Rows rows = next;
      next.count = 0;
      if (left != 0) next = take();
      const Row sum =
          kInvariant ? merger.fold(rows.row) : merger.weigh(rows.row, rows.slot, rows.own_slot, complete.own);
      if (lane_ / kLanes < rows.count) sum.write_out(call_, rows.row.token, rows.row.q_head, lane_);
    }
  }
  // For the next launch, or for the warp that waits for the row.
  __device__ void mark_merged(const LaneRow& mine, const Complete& complete) const {
    if ((complete.lanes >> lane_ & 1) != 0) *mine.arrived = is_rest_merged_ ? kMerged : 0;
  }

 private:
  __device__ uint32_t few_row(uint32_t round, uint32_t n) const {
    return (round * kWarps + warp_) * kRowsWarp + n;
  }
  __device__ LaneRow lane_row(const Job& job, uint32_t first, uint32_t r) const {
    const bool is_there = r < job.tokens * call_.group;
    const uint32_t at = is_there ? r : 0, token = call_.token_of_row(at);
    const SlabToken& of = stream_.tokens[first * kHalfSlabRows + token];
    const MergeRow merge{of.token, q_head(job, at), of.merge_begin, of.merge_count};
    return {is_there, token, call_.arrived + uint64_t{job.token_begin + token} * call_.q_heads + merge.q_head, merge};
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
  bool is_rest_merged_;   // by merge_rest()
};

}  // namespace headwater::backend::cuda
