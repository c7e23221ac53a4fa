// The end of a step: the states of each row meet, in the order of the plan's merge table, whatever the order in which they
// came. All attending warps of the grid share the rows. A warp waits for the states of its rows, copies them to shared
// memory, some ahead of those that it adds, and writes the rows. No job is left by then, so the rings' memory is free.
#pragma once

#include "backend/cuda/attention/hopper_shared.cuh"
#include "backend/cuda/attention/rows.cuh"

namespace headwater::backend::cuda {

template <typename Element, AttendPolicy kPolicy, bool kInvariant>
class RowMerger {
 public:
  using Shared = HopperShared<kPolicy>;
  using Row = SpreadRow<Element, kPolicy.head_dim, kWarp>;

  __device__ RowMerger(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call),
        clocks_(shared.clocks),
        tokens_(shared.stream[stream].step_tokens),
        warp_(stream * kWarps + thread / kWarp),
        lane_(thread % kWarp),
        memory_(reinterpret_cast<float*>(shared.slots[0][0]) + warp_ * kPlaces * kPlaceFloats) {}

  __device__ void run() {
    ptx::sync_named(1 + kStreams, kStreams * kWarpgroup);  // nobody reads the rings any more
    clocks_.stamp(Event::kStreamsMet);
    const uint32_t rows = tokens_ * call_.q_heads, stride = gridDim.x * kStreams * kWarps;
    // Neighbours go to different blocks.
    for (uint32_t first = warp_ * gridDim.x + blockIdx.x; first < rows; first += stride * kWarp) {
      const uint32_t row = first + lane_ * stride;
      mine_ = row_at(min(row, rows - 1), row < rows);
      merge(row);
      clocks_.stamp(Event::kRowsWritten);
    }
  }

 private:
  // States that are copied and added together, and how many times as many are under way. lse2 lies behind the columns.
  static constexpr uint32_t kStates = 8, kStateFloats = kPolicy.head_dim + 4, kPlaceFloats = kStates * kStateFloats;
  static constexpr uint32_t kPlacesThatFit =
      kPolicy.slots * kPolicy.slot_bytes / (kWarps * kPlaceFloats * uint32_t{sizeof(float)});
  static constexpr uint32_t kPlaces = kPlacesThatFit < 6 ? kPlacesThatFit : 6;
  static_assert(kPlaces >= 2);

  struct MergeRow {
    uint32_t token;  // of the batch
    uint32_t q_head;
    uint32_t begin, count;  // of AttendCall::merge_slots; count 0: written by its job
  };
  // Some states of the row in lane `holder`.
  struct Unit {
    uint32_t holder, begin, count;
    bool is_last;
  };
  // Where a walk over the states of all rows is.
  struct Walk {
    uint32_t left;  // rows, a bit for their lane
    uint32_t at;    // state of the first of them
  };

  __device__ MergeRow row_at(uint32_t row, bool is_there) const {
    const uint32_t position = call_.q_heads_division.quotient(row);
    return {call_.token_order[position], row - position * call_.q_heads, call_.merge_indptr[position],
            is_there ? slots_of_token(call_, position) : 0};
  }

  // What is waited for comes, since all blocks of the grid come (claim.h) and wait for nobody but each other here.
  __device__ void wait(uint32_t row) const {
    BlockClocks::RowPoll poll = clocks_.row_poll(mine_.count);
    if (mine_.count > 0) {
      uint32_t* const arrived = call_.arrived + row;
      while (ptx::load_in_order(arrived) != mine_.count) poll.again();
      *arrived = 0;  // for the next launch
    }
    __syncwarp();
    clocks_.rows_complete(poll, mine_.count > 0);
  }

  // The rows of all lanes; row: this lane's. What the plan says of the first is read while the rows are waited for.
  __device__ void merge(uint32_t row) {
    const uint32_t rows = __ballot_sync(~0u, mine_.count > 0);
    Walk copied{rows, 0}, added{rows, 0};
    Unit next = take(copied);
    uint32_t slot = slot_of(next);
    wait(row);
#pragma unroll 1
    for (uint32_t ahead = 0, n = 0; added.left != 0;) {
      const bool is_more = next.count > 0;
      if (is_more && ahead < kPlaces) {
        copy(next, slot, memory_ + (n + ahead) % kPlaces * kPlaceFloats);
        ++ahead;
        next = take(copied);
        slot = slot_of(next);  // on its way beside the states of these
        continue;
      }
      if (is_more) {
        ptx::wait_pieces_but<kPlaces - 1>();
      } else {
        ptx::wait_pieces();
      }
      __syncwarp();
      add(take(added), memory_ + n % kPlaces * kPlaceFloats);
      __syncwarp();  // before others are copied there
      ++n, --ahead;
    }
  }

  __device__ Unit take(Walk& walk) const {
    const uint32_t holder = walk.left != 0 ? __ffs(static_cast<int>(walk.left)) - 1 : 0;
    const uint32_t count = walk.left != 0 ? __shfl_sync(~0u, mine_.count, holder) : 0;
    const Unit unit{holder, walk.at, min(kStates, count - walk.at), walk.at + kStates >= count};
    walk.at += kStates;
    if (unit.is_last) walk.left &= walk.left - 1, walk.at = 0;
    return unit;
  }

  // Four lanes copy a state.
  static constexpr uint32_t kLanesState = kWarp / kStates;

  // Of the state that this lane copies of the unit.
  __device__ uint32_t slot_of(const Unit& unit) const {
    const uint32_t begin = __shfl_sync(~0u, mine_.begin, unit.holder) + unit.begin;
    return unit.count == 0 ? 0 : call_.merge_slots[begin + min(lane_ / kLanesState, unit.count - 1)];
  }

  __device__ void copy(const Unit& unit, uint32_t slot, float* to) const {
    const uint32_t q_head = __shfl_sync(~0u, mine_.q_head, unit.holder);
    if (lane_ / kLanesState < unit.count) {
      const uint32_t column = lane_ % kLanesState * 4;
      const float* const from = partial_row(call_, slot, q_head) + column;
      float* const state = to + lane_ / kLanesState * kStateFloats + column;
#pragma unroll
      for (uint32_t i = 0; i < kPolicy.head_dim; i += kLanesState * 4) {
        if (i + column < call_.head_dim) ptx::copy_piece(state + i, from + i, true);
      }
      if (column == 0) ptx::copy_piece(state + kPolicy.head_dim, from + call_.head_dim, true);
    }
    ptx::end_pieces();
  }

  __device__ void add(const Unit& unit, const float* states) {
    if (unit.begin == 0) sum_.clear(), m_ = -INFINITY, l_ = 0;
    if constexpr (kInvariant) {
      fold(unit, states);
    } else {
      weigh(unit, states);
    }
    if (!unit.is_last) return;
    if (!kInvariant && l_ > 0) {
      sum_.scale(__fdividef(1, l_));
      sum_.lse2 = m_ + ptx::log2(l_);
    }
    sum_.write_out(call_, __shfl_sync(~0u, mine_.token, unit.holder), __shfl_sync(~0u, mine_.q_head, unit.holder),
                   lane_);
  }

  // One after the other.
  __device__ void fold(const Unit& unit, const float* states) {
#pragma unroll 1
    for (uint32_t s = 0; s < unit.count; ++s, states += kStateFloats) {
      const float lse2 = states[kPolicy.head_dim];
      if (is_empty(lse2)) continue;
      const Shares shares = shares_of(sum_.lse2, lse2);
#pragma unroll
      for (uint32_t i = 0; i < Row::kQuads; ++i) sum_.merge(i, shares, values_of(states, i));
      sum_.lse2 = shares.lse2;
    }
  }

  // Relative to the largest so far, divided by all weights at the end. An empty state may have any values.
  __device__ void weigh(const Unit& unit, const float* states) {
    const float found = states[min(lane_ % kStates, unit.count - 1) * kStateFloats + kPolicy.head_dim];
    const float lse2 = lane_ % kStates < unit.count && !is_empty(found) ? found : -INFINITY;
    float largest = lse2;
#pragma unroll
    for (uint32_t offset = kStates / 2; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
    }
    const float before = m_;
    m_ = fmaxf(m_, largest);
    const float base = m_ == -INFINITY ? 0 : m_;
    const float rescale = ptx::exp2(before - base), weight = ptx::exp2(lse2 - base);
    float all = weight;
#pragma unroll
    for (uint32_t offset = kStates / 2; offset > 0; offset /= 2) all += __shfl_xor_sync(~0u, all, offset);
    l_ = l_ * rescale + all;
    sum_.scale(rescale);
#pragma unroll 2
    for (uint32_t s = 0; s < unit.count; ++s, states += kStateFloats) {
      const float w = __shfl_sync(~0u, weight, s);
      if (w == 0) continue;
#pragma unroll
      for (uint32_t i = 0; i < Row::kQuads; ++i) sum_.add(i, w, values_of(states, i));
    }
  }

  // Lanes beyond the columns read others, which no one writes out.
  __device__ float4 values_of(const float* state, uint32_t i) const {
    return *reinterpret_cast<const float4*>(state + min(Row::column(i, lane_), kPolicy.head_dim - 4));
  }

  const AttendCall& call_;
  BlockClocks& clocks_;
  uint32_t tokens_;       // of the step
  uint32_t warp_, lane_;  // warp of the block's attending ones
  float* memory_;         // [kPlaces][kStates][kStateFloats], of this warp
  MergeRow mine_;         // the lane's row
  Row sum_;               // the row that is being added
  float m_ = -INFINITY, l_ = 0;
};

}  // namespace headwater::backend::cuda
