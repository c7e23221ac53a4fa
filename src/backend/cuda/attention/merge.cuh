// The last step of a row: its partials meet, in the order of the plan's merge table, whatever the order in which they came.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/attention/state.cuh"

namespace headwater::backend::cuda {

__device__ __forceinline__ uint64_t partial_row(const AttendCall& call, uint32_t slot, uint32_t q_head) {
  return uint64_t{slot} * call.q_heads + q_head;
}

__device__ __forceinline__ uint64_t out_offset(const AttendCall& call, uint32_t token, uint32_t q_head) {
  return token * call.out_stride + uint64_t{q_head} * call.head_dim;
}

__device__ __forceinline__ void store_lse2(const AttendCall& call, uint32_t token, uint32_t q_head, float lse2) {
  if (call.lse2 != nullptr) call.lse2[uint64_t{token} * call.q_heads + q_head] = lse2;
}

// A row and what its merge reads.
struct MergeRow {
  uint32_t token;  // of the batch
  uint32_t q_head;
  uint32_t begin, count;  // of AttendCall::merge_slots; count 0: kDirect, or no key at all
};

// A row spread over kLanes lanes: each has the columns 4 (kLanes i + lane), i < kQuads, and the three behind.
template <typename Element, uint32_t kHeadDim, uint32_t kLanes>
struct SpreadRow {
  static constexpr uint32_t kQuads = (kHeadDim + 4 * kLanes - 1) / (4 * kLanes);
  float4 v[kQuads];
  float lse2;

  __device__ static uint32_t column(uint32_t i, uint32_t lane) { return 4 * (kLanes * i + lane % kLanes); }
  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) v[i] = make_float4(0, 0, 0, 0);
    lse2 = -INFINITY;
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      v[i] = make_float4(v[i].x * factor, v[i].y * factor, v[i].z * factor, v[i].w * factor);
    }
  }
  // By all lanes of the row.
  __device__ void write_out(const AttendCall& call, uint32_t token, uint32_t q_head, uint32_t lane) const {
    const uint64_t offset = out_offset(call, token, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      if (column(i, lane) >= call.head_dim) continue;
      if (call.is_wide) {
        *reinterpret_cast<float4*>(static_cast<float*>(call.out) + offset + column(i, lane)) = v[i];
      } else {
        *reinterpret_cast<uint2*>(static_cast<Element*>(call.out) + offset + column(i, lane)) =
            make_uint2(pack<Element>(v[i].x, v[i].y), pack<Element>(v[i].z, v[i].w));
      }
    }
    if (lane % kLanes == 0) store_lse2(call, token, q_head, lse2);
  }
  __device__ void write_partial(const AttendCall& call, uint32_t slot, uint32_t q_head, uint32_t lane) const {
    const uint64_t row = partial_row(call, slot, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kQuads; ++i) {
      if (column(i, lane) >= call.head_dim) continue;
      *reinterpret_cast<float4*>(call.partial_values + row * call.head_dim + column(i, lane)) = v[i];
    }
    if (lane % kLanes == 0) call.partial_lse2[row] = lse2;
  }
};

// Merges rows, kLanes lanes each; all lanes of a warp call it together.
template <typename Element, uint32_t kHeadDim, uint32_t kLanes>
class RowMerger {
 public:
  using Row = SpreadRow<Element, kHeadDim, kLanes>;
  static constexpr uint32_t kQuads = Row::kQuads;
  static constexpr uint32_t kNone = ~0u;

  __device__ RowMerger(const AttendCall& call, uint32_t lane) : call_(call), lane_(lane), sub_(lane % kLanes) {}

  // The left fold, one state after the other; a row without any key is its sink.
  __device__ Row fold(const MergeRow& row) const {
    Row sum;
    sum.clear();
    if (row.count == 0) sum.lse2 = sink_lse2(call_, row.q_head);
    for (uint32_t k = 0; k < most(row.count); ++k) {
      const uint64_t at = partial_row(call_, call_.merge_slots[row.begin + min(k, max(row.count, 1u) - 1)], row.q_head);
      const float next = k < row.count ? lse2_of(at) : -INFINITY;
      if (is_empty(next)) continue;
      const Shares shares = shares_of(sum.lse2, next);
#pragma unroll
      for (uint32_t i = 0; i < kQuads; ++i) {
        const float4 v = values_of(at, i);
        sum.v[i] = make_float4(merged(shares, sum.v[i].x, v.x), merged(shares, sum.v[i].y, v.y),
                               merged(shares, sum.v[i].z, v.z), merged(shares, sum.v[i].w, v.w));
      }
      sum.lse2 = shares.lse2;
    }
    return sum;
  }

  // The slot of a row's state base + lane, or, if it has not so many, of its first.
  __device__ uint32_t slot_of(const MergeRow& row, uint32_t base) const {
    return ptx::load_far(call_.merge_slots + row.begin + (base + sub_ < row.count ? base + sub_ : 0));
  }

  // Weights relative to the largest of kLanes states at a time; many states' loads in flight. row.count > 0. slot: slot_of(row,
  // 0). The state of own_slot, if there is one, is `own` and not in memory.
  __device__ Row weigh(const MergeRow& row, uint32_t slot, uint32_t own_slot, const Row& own) const {
    Row sum;
    sum.clear();
    float m = -INFINITY, l = 0;
    const uint32_t states = most(row.count);
    for (uint32_t base = 0; base < states; base += kLanes) {
      // Lanes without a state read the first one, the lane of `own` another one: a load under a condition would make the
      // next one wait.
      const bool is_there = base + sub_ < row.count;
      States some{slot, 0, kNone};
      slot = slot_of(row, base + kLanes);  // on its way beside the values of these
      const bool is_own = some.slot == own_slot;
      const uint32_t owners = __ballot_sync(~0u, is_own && is_there) >> (lane_ - sub_);
      if (owners % (uint64_t{1} << kLanes) != 0) some.own = __ffs(static_cast<int>(owners)) - 1;
      const uint32_t other = __shfl_sync(~0u, some.slot, some.own == 0 ? 1 : 0, kLanes);
      if (is_own) some.slot = other;
      const float loaded = lse2_of(partial_row(call_, some.slot, row.q_head));
      const float lse2 = !is_there ? -INFINITY : is_own ? own.lse2 : loaded;
      const auto weigh_all = [&] { some.weight = raise(lse2, sum, m, l); };
      const uint32_t count = min(states - base, kLanes);
      uint32_t k = 0;
      for (; k + kMany <= count; k += kMany) add<kMany>(row, some, k, weigh_all, own, sum);
      for (; k + kFew < count; k += kFew) add<kFew>(row, some, k, weigh_all, own, sum);
      for (; k < count; k += 2) add<2>(row, some, k, weigh_all, own, sum);
    }
    if (l == 0) return sum;
    sum.scale(__fdividef(1, l));
    sum.lse2 = m + log2f(l);
    return sum;
  }

 private:
  // States whose values are in flight together.
  static constexpr uint32_t kMany = kQuads < 4 ? 16 : 8, kFew = kMany / 4;

  __device__ uint32_t most(uint32_t count) const {
    return kLanes == 32 ? count : __reduce_max_sync(~0u, count);
  }
  __device__ float lse2_of(uint64_t row) const {
    const float lse2 = __ldcg(call_.partial_lse2 + row);
    return is_empty(lse2) ? -INFINITY : lse2;
  }
  // Columns beyond the head's are read, not used: a load under a condition would make the next one wait.
  __device__ float4 values_of(uint64_t row, uint32_t i) const {
    const uint32_t at = min(Row::column(i, lane_), call_.head_dim - 4);
    return ptx::load_far(call_.partial_values + row * call_.head_dim + at);
  }

  // States of a row, one a lane.
  struct States {
    uint32_t slot;
    float weight;
    uint32_t own;  // the lane whose state is not in memory, or kNone
  };

  // States k, k + 1, ...; their weights are known after the first loads are under way. What has weight 0, an empty state or
  // none at all, may have any values.
  template <uint32_t kCount, typename WeighAll>
  __device__ __forceinline__ void add(const MergeRow& row, States& some, uint32_t k, const WeighAll& weigh_all,
                                      const Row& own, Row& sum) const {
    float4 v[kCount][kQuads];
#pragma unroll
    for (uint32_t t = 0; t < kCount; ++t) {
      const uint64_t from = partial_row(call_, __shfl_sync(~0u, some.slot, k + t, kLanes), row.q_head);
#pragma unroll
      for (uint32_t i = 0; i < kQuads; ++i) v[t][i] = values_of(from, i);
    }
    if (k == 0) weigh_all();
#pragma unroll
    for (uint32_t t = 0; t < kCount; ++t) {
      const float w = __shfl_sync(~0u, some.weight, k + t, kLanes);
#pragma unroll
      for (uint32_t i = 0; i < kQuads; ++i) {
        const float4 x = k + t == some.own ? own.v[i] : v[t][i];
        if (w == 0) continue;
        sum.v[i] = make_float4(__fmaf_rn(w, x.x, sum.v[i].x), __fmaf_rn(w, x.y, sum.v[i].y),
                               __fmaf_rn(w, x.z, sum.v[i].z), __fmaf_rn(w, x.w, sum.v[i].w));
      }
    }
  }

  // The weight of this lane's state once m is the largest of all so far; what was summed is rescaled.
  __device__ float raise(float lse2, Row& sum, float& m, float& l) const {
    float largest = lse2;
#pragma unroll
    for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
    }
    const float before = m;
    m = fmaxf(m, largest);
    const float base = m == -INFINITY ? 0 : m;
    const float rescale = ptx::exp2(before - base), weight = ptx::exp2(lse2 - base);
    float all = weight;
#pragma unroll
    for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) all += __shfl_xor_sync(~0u, all, offset);
    l = l * rescale + all;
    sum.scale(rescale);
    return weight;
  }

  const AttendCall& call_;
  uint32_t lane_, sub_;
};

}  // namespace headwater::backend::cuda
