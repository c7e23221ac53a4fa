// Attend and merge in one launch for every element type, head size and architecture: plain float arithmetic, 16 rows at a
// time, 32 keys at a time. It is what runs where the Hopper kernel does not: F32 and F8 pools, odd head sizes, other GPUs.
//
// A block takes jobs (an item for one KV head) in the plan's order. A warp holds four rows; a lane scores one key for each
// of them, then owns every 32nd column of their outputs. Every cut is computed from scratch and folded in key order, so
// bits depend on a row's own keys alone: this path is always invariant.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/attention/rows.cuh"

namespace headwater::backend::cuda {

struct GenericShape {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kRowsWarp = 4;
  static constexpr uint32_t kRows = kWarps * kRowsWarp;
  static constexpr uint32_t kKeys = 32;  // of a tile: one a lane
  static constexpr uint32_t kSpans = 8;  // of 32 columns: heads up to 256

  // queries [rows][D], keys [kKeys][D + 1], values [kKeys][D]
  static constexpr uint32_t shared_bytes(uint32_t head_dim) {
    return (kRows * head_dim + kKeys * (head_dim + 1) + kKeys * head_dim) * sizeof(float);
  }
};

struct GenericState {
  float o[GenericShape::kSpans];  // columns lane + 32 i
  float m = -INFINITY;
  float l = 0;
  float lse2 = -INFINITY;

  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < GenericShape::kSpans; ++i) o[i] = 0;
    m = lse2 = -INFINITY;
    l = 0;
  }
  __device__ void normalise() {
    const float inverse = l > 0 ? 1 / l : 0;
    lse2 = l > 0 ? m + log2f(l) : -INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < GenericShape::kSpans; ++i) o[i] *= inverse;
  }
  __device__ void fold(const GenericState& next) {
    if (is_empty(next.lse2)) return;
    const Shares shares = shares_of(lse2, next.lse2);
#pragma unroll
    for (uint32_t i = 0; i < GenericShape::kSpans; ++i) o[i] = merged(shares, o[i], next.o[i]);
    lse2 = shares.lse2;
  }
};

// By one warp. A token (plan position) without any key has no partials.
template <typename Output>
__device__ void merge_row(const AttendCall& call, uint32_t position, uint32_t q_head, uint32_t lane) {
  const uint32_t begin = call.merge_indptr[position], count = slots_of_token(call, position);
  SpreadRow<Output, 256, 32> sum;
  sum.clear();
  if (count == 0) sum.lse2 = sink_lse2(call, q_head);
  for (uint32_t k = 0; k < count; ++k) {
    const float* const state = partial_row(call, call.merge_slots[begin + k], q_head);
    const float lse2 = __ldcg(state + call.head_dim);
    if (is_empty(lse2)) continue;
    const Shares shares = shares_of(sum.lse2, lse2);
    for (uint32_t i = 0; i < sum.kQuads; ++i) {
      const uint32_t column = min(sum.column(i, lane), call.head_dim - 4);  // what is beyond is not written
      sum.merge(i, shares, __ldcg(reinterpret_cast<const float4*>(state + column)));
    }
    sum.lse2 = shares.lse2;
  }
  sum.write_out(call, call.token_order[position], q_head, lane);
}

template <typename Element>
class GenericAttender : GenericShape {
 public:
  using Output = typename OutputOf<Element>::Type;

  __device__ GenericAttender(const AttendCall& call, float* shared)
      : call_(call),
        queries_(shared),
        keys_(queries_ + kRows * call.head_dim),
        values_(keys_ + kKeys * (call.head_dim + 1)),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {}

  __device__ void run(const attention::WorkItem& item, uint32_t kv_head) {
    const uint32_t rows = item.token_count * call_.group;
    for (uint32_t row = 0; row < rows; row += kRows) attend_rows(item, kv_head, row, min(kRows, rows - row));
    if (call_.kv_bytes_read != nullptr && threadIdx.x == 0) {
      atomicAdd(call_.kv_bytes_read,
                item.key_count * (2ull * call_.head_dim * sizeof(Element) + (call_.kv.k_scales != nullptr ? 8 : 0)));
    }
    if ((item.flags & attention::kDirect) == 0) arrive(item, kv_head);
  }

 private:
  __device__ void attend_rows(const attention::WorkItem& item, uint32_t kv_head, uint32_t first, uint32_t count) {
    load_queries(item, kv_head, first, count);
    const bool folds = (item.flags & attention::kFold) != 0;
    const uint32_t key_end = item.key_begin + item.key_count;
    GenericState folded[kRowsWarp], state[kRowsWarp];
#pragma unroll
    for (uint32_t r = 0; r < kRowsWarp; ++r) {
      folded[r].clear();
      const uint32_t row = first + warp_ * kRowsWarp + r;
      if (folds) folded[r].lse2 = sink_lse2(call_, kv_head * call_.group + row % call_.group);
    }
    uint32_t cuts = 0;
    for (uint32_t key = item.key_begin; key < key_end; ++cuts) {
      const uint32_t cut_end = min(key_end, (key / call_.cut + 1) * call_.cut);
#pragma unroll
      for (uint32_t r = 0; r < kRowsWarp; ++r) state[r].clear();
      for (; key < cut_end; key += min(kKeys, cut_end - key)) {
        load_tile(item, kv_head, key, min(kKeys, cut_end - key));
        attend_tile(item, first, count, key, min(kKeys, cut_end - key), state);
      }
#pragma unroll
      for (uint32_t r = 0; r < kRowsWarp; ++r) {
        state[r].normalise();
        if (folds) {
          folded[r].fold(state[r]);
        } else {
          write_partial(item, kv_head, first, count, r, item.partial_begin + cuts * item.token_count, state[r]);
        }
      }
    }
    if (!folds) return;
#pragma unroll
    for (uint32_t r = 0; r < kRowsWarp; ++r) {
      if ((item.flags & attention::kDirect) != 0) {
        write_out(item, kv_head, first, count, r, folded[r]);
      } else {
        write_partial(item, kv_head, first, count, r, item.partial_begin, folded[r]);
      }
    }
  }

  __device__ void load_queries(const attention::WorkItem& item, uint32_t kv_head, uint32_t first, uint32_t count) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count * call_.head_dim; i += kThreads) {
      const uint32_t row = first + i / call_.head_dim;
      const uint64_t token = call_.token_order[item.token_begin + row / call_.group];
      const uint64_t at = token * call_.q_stride +
                          uint64_t{kv_head * call_.group + row % call_.group} * call_.head_dim + i % call_.head_dim;
      queries_[i] =
          call_.q_is_wide ? static_cast<const float*>(call_.q)[at] : to_float(static_cast<const Output*>(call_.q)[at]);
    }
  }

  __device__ void load_tile(const attention::WorkItem& item, uint32_t kv_head, uint32_t key, uint32_t count) {
    __syncthreads();
    const uint32_t page_first = item.key_begin / call_.page_size;
    for (uint32_t i = threadIdx.x; i < count * call_.head_dim; i += kThreads) {
      const uint32_t k = i / call_.head_dim, column = i % call_.head_dim;
      const uint64_t page = call_.page_ids[item.page_begin + (key + k) / call_.page_size - page_first];
      const uint32_t slot = (key + k) % call_.page_size;
      const uint64_t at =
          page * call_.kv.page_stride + uint64_t{kv_head} * call_.kv.head_stride + slot * call_.kv.slot_stride;
      float scale_k = 1, scale_v = 1;
      if (call_.kv.k_scales != nullptr) {
        const uint64_t scale_at =
            page * call_.kv.scale_page_stride + uint64_t{kv_head} * call_.kv.scale_head_stride + slot;
        scale_k = call_.kv.k_scales[scale_at];
        scale_v = call_.kv.v_scales[scale_at];
      }
      keys_[k * (call_.head_dim + 1) + column] =
          to_float(static_cast<const Element*>(call_.kv.k)[at + column]) * scale_k;
      values_[i] = to_float(static_cast<const Element*>(call_.kv.v)[at + column]) * scale_v;
    }
    __syncthreads();
  }

  __device__ float score(const float* query) const {
    const float* key = keys_ + lane_ * (call_.head_dim + 1);
    float sum = 0;
    for (uint32_t d = 0; d < call_.head_dim; ++d) sum = __fmaf_rn(query[d], key[d], sum);
    sum *= call_.score_scale;
    return call_.softcap > 0 ? tanhf(sum) * call_.softcap : sum;
  }

  __device__ void attend_tile(const attention::WorkItem& item, uint32_t first, uint32_t count, uint32_t key,
                              uint32_t keys, GenericState (&state)[kRowsWarp]) const {
#pragma unroll
    for (uint32_t r = 0; r < kRowsWarp; ++r) {
      const uint32_t index = warp_ * kRowsWarp + r;
      if (index >= count) continue;
      const uint32_t position = item.token_begin + (first + index) / call_.group;
      const Visible visible =
          visible_keys(call_, call_.token_empty[position] != 0 ? ~0u : call_.token_position[position]);
      const bool is_seen = lane_ < keys && key + lane_ >= visible.begin && key + lane_ < visible.end;
      const float s = is_seen ? score(queries_ + index * call_.head_dim) : -INFINITY;
      float m = s;
      for (uint32_t offset = 16; offset > 0; offset /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, offset));
      m = fmaxf(m, state[r].m);
      if (m == -INFINITY) continue;
      const float weight = is_seen ? exp2f(s - m) : 0;
      const float rescale = exp2f(state[r].m - m);
      float sum = weight;
      for (uint32_t offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
      state[r].m = m;
      state[r].l = state[r].l * rescale + sum;
#pragma unroll
      for (uint32_t i = 0; i < kSpans; ++i) state[r].o[i] *= rescale;
      const uint32_t seen = __ballot_sync(~0u, is_seen);
      for (uint32_t k = 0; k < keys; ++k) {
        const float w = __shfl_sync(~0u, weight, k);
        if ((seen >> k & 1) == 0) continue;
#pragma unroll
        for (uint32_t i = 0; i < kSpans; ++i) {
          const uint32_t column = lane_ + 32 * i;
          if (column < call_.head_dim)
            state[r].o[i] = __fmaf_rn(w, values_[k * call_.head_dim + column], state[r].o[i]);
        }
      }
    }
  }

  __device__ void write_out(const attention::WorkItem& item, uint32_t kv_head, uint32_t first, uint32_t count,
                            uint32_t r, const GenericState& state) const {
    const uint32_t row = first + warp_ * kRowsWarp + r;
    if (row >= first + count) return;
    const uint32_t token = call_.token_order[item.token_begin + row / call_.group];
    const uint32_t q_head = kv_head * call_.group + row % call_.group;
    const uint64_t offset = out_offset(call_, token, q_head);
#pragma unroll
    for (uint32_t i = 0; i < kSpans; ++i) {
      const uint32_t column = lane_ + 32 * i;
      if (column >= call_.head_dim) continue;
      if (call_.out_is_wide) {
        static_cast<float*>(call_.out)[offset + column] = state.o[i];
      } else {
        static_cast<Output*>(call_.out)[offset + column] = from_float<Output>(state.o[i]);
      }
    }
    if (lane_ == 0) store_lse2(call_, token, q_head, state.lse2);
  }

  __device__ void write_partial(const attention::WorkItem& item, uint32_t kv_head, uint32_t first, uint32_t count,
                                uint32_t r, uint32_t slot, const GenericState& state) const {
    const uint32_t row = first + warp_ * kRowsWarp + r;
    if (row >= first + count) return;
    float* const to = partial_row(call_, slot + row / call_.group, kv_head * call_.group + row % call_.group);
#pragma unroll
    for (uint32_t i = 0; i < kSpans; ++i) {
      const uint32_t column = lane_ + 32 * i;
      if (column < call_.head_dim) to[column] = state.o[i];
    }
    if (lane_ == 0) to[call_.head_dim] = state.lse2;
  }

  // Who writes the last partial of a token merges them all: a warp for each such token.
  __device__ void arrive(const attention::WorkItem& item, uint32_t kv_head) const {
    __threadfence();
    __syncthreads();
    for (uint32_t j = warp_; j < item.token_count; j += kWarps) {
      uint32_t is_complete = 0;
      if (lane_ == 0)
        is_complete = arrive_token(item.token_begin + j, kv_head,
                                   slots_of_item(call_, item.flags, item.key_begin, item.key_begin + item.key_count));
      if (__shfl_sync(~0u, is_complete, 0) == 0) continue;
      __threadfence();
      for (uint32_t head = 0; head < call_.group; ++head)
        merge_row<Output>(call_, item.token_begin + j, kv_head * call_.group + head, lane_);
    }
  }

  __device__ bool arrive_token(uint32_t position, uint32_t kv_head, uint32_t count) const {
    uint32_t* arrived = call_.arrived + uint64_t{position} * call_.kv_heads + kv_head;
    if (atomicAdd(arrived, count) + count != slots_of_token(call_, position)) return false;
    *arrived = 0;  // for the next launch
    return true;
  }

  const AttendCall& call_;
  float* queries_;
  float* keys_;
  float* values_;
  uint32_t lane_, warp_;
};

template <typename Element>
__global__ void __launch_bounds__(GenericShape::kThreads) attend_generic(const __grid_constant__ AttendCall call) {
  extern __shared__ float generic_memory[];
  const uint32_t jobs = call.header->items * call.kv_heads;
  for (uint32_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    GenericAttender<Element>(call, generic_memory).run(call.items[job / call.kv_heads], job % call.kv_heads);
  }
  for (uint32_t t = blockIdx.x; t < call.header->tokens; t += gridDim.x) {
    if (call.token_empty[t] == 0) continue;
    for (uint32_t head = threadIdx.x / 32; head < call.q_heads; head += GenericShape::kWarps) {
      merge_row<typename OutputOf<Element>::Type>(call, t, head, threadIdx.x % 32);
    }
  }
}

}  // namespace headwater::backend::cuda
