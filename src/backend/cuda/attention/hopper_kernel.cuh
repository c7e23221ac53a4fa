// Attend and merge of one layer in one launch, whatever the plan holds: single sequences, many behind one prefix, prompt
// chunks, pieces of any of them. docs/kernels/attention-cuda.md begins with its roofline.
//
// The grid is as many blocks as the device has multiprocessors. Block b begins with job b of the plan's longest-first
// order (an item for one KV head) and then takes whichever is next; the loader runs ahead of the others, so that memory
// never waits for softmax or merges.
#pragma once

#include "backend/cuda/attention/hopper_attend.cuh"
#include "backend/cuda/attention/hopper_finish.cuh"
#include "backend/cuda/attention/hopper_load.cuh"

namespace headwater::backend::cuda {

template <typename Element, AttendPolicy kPolicy, bool kInvariant>
class AttendingWarpgroup {
 public:
  using Shared = HopperShared<kPolicy>;
  using State = RowsState<kPolicy.head_dim>;
  using Rows = Attender<Element, kPolicy, kInvariant>;
  static constexpr uint32_t kTileKeys = kPolicy.tile_keys;

  __device__ AttendingWarpgroup(const AttendCall& call, Shared& shared, uint32_t warpgroup, uint32_t thread)
      : call_(call),
        shared_(shared),
        warpgroup_(warpgroup),
        thread_(thread),
        rows_(call, shared, thread),
        finisher_(call, shared, warpgroup, thread) {}

  __device__ void run() {
    for (uint32_t n = 0;; ++n) {
      const Job job = shared_.take_job(n);
      ptx::sync_named(kBarrierWarpgroup + 1 + warpgroup_, kWarpgroup);
      if (thread_ == 0) shared_.job_taken(n);
      if (job.slabs == 0) return;
      attend(job, division_of(job, n));
      uses_ += 2 * tiles_of(job);
      slabs_ += job.slabs;
    }
  }

 private:
  __device__ uint32_t tiles_of(const Job& job) const {
    if (!kInvariant) return (job.key_count + kTileKeys - 1) / kTileKeys;
    uint32_t tiles = 0;
    const uint32_t key_end = job.key_begin + job.key_count;
    for (uint32_t key = job.key_begin; key < key_end; ++tiles)
      key = tile_at<kTileKeys, true>(key, key_end, call_.cut).end;
    return tiles;
  }

  struct Slab {
    uint32_t place;
    uint32_t token_begin, tokens;  // plan positions
    uint32_t rows;
  };
  __device__ Slab take_slab(const Job& job, uint32_t slab) {
    const Use<kSlabs> use(slabs_ + slab);
    shared_.queries.wait_full(use);
    const uint32_t tokens_max = call_.slab_tokens, first = slab * tokens_max;
    const uint32_t tokens = min(tokens_max, job.token_count - first);
    return {use.place, job.token_begin + first, tokens, tokens * call_.group};
  }
  __device__ void give_slab_back(const Slab& slab) {
    ptx::sync_named(kBarrierWarpgroup + 1 + warpgroup_, kWarpgroup);
    if (thread_ == 0) ptx::arrive(&shared_.queries.empty[slab.place]);
  }

  // This warpgroup's part of a job.
  struct Division {
    bool takes_part;
    bool is_split;  // every other tile of the slab; the owner has the first and joins both states
    bool is_owner;  // of the slab: writes its rows
    uint32_t slab;
  };
  __device__ Division division_of(const Job& job, uint32_t n) const {
    if (job.slabs == kSlabs) return {true, false, true, warpgroup_};
    const bool is_owner = n % kAttending == warpgroup_;
    const bool is_split = !kInvariant && job.key_count > kTileKeys;
    return {is_owner || is_split, is_split, is_owner, 0};
  }

  __device__ __forceinline__ void attend(const Job& job, const Division& division) {
    if (!division.takes_part) return;
    const Slab slab = take_slab(job, division.slab);
    const uint32_t key_end = job.key_begin + job.key_count;
    const ThreadRows rows = rows_.rows_of(slab.place, slab.rows, key_end);
    const uint32_t weight = job.slabs == kSlabs ? 1 : kAttending;
    if constexpr (kInvariant) {
      attend_cuts(job, slab, rows, weight);
    } else {
      State state;
      state.clear();
      const uint32_t first = division.is_owner ? 0 : 1, step = division.is_split ? kAttending : 1;
      rows_.attend({job.key_begin, key_end, first, step, uses_, weight}, slab.place, rows, state);
      if (!division.is_owner) return finisher_.give(slab.place, slab.rows, state);
      if (division.is_split) finisher_.take(slab.place, slab.rows, state);
      finish(job, slab, state);
    }
  }

  // The state of the whole item: one state a token, in the first of its slots; the slots of further cuts stay empty.
  __device__ void finish(const Job& job, const Slab& slab, State& state) {
    float lse2[2];
    Finisher<Element, kPolicy, kInvariant>::normalise(state, lse2);
    const bool folds = (job.flags & attention::kFold) != 0;
    if (folds) finisher_.add_sinks(job, slab.rows, state, lse2);
    if ((job.flags & attention::kDirect) != 0) {
      finisher_.write_out(job, slab.place, slab.rows, state, lse2);
      give_slab_back(slab);
      return;
    }
    give_slab_back(slab);
    const uint32_t first = job.partial_begin + slab.token_begin - job.token_begin;
    const uint32_t key_end = job.key_begin + job.key_count;
    const uint32_t slots = folds ? 1 : (key_end - 1) / call_.cut - job.key_begin / call_.cut + 1;
    finisher_.write_partial(job, first, slab.rows, state, lse2);
    for (uint32_t c = 1; c < slots; ++c) finisher_.write_empty(job, first + c * job.token_count, slab.rows);
    finisher_.arrive(job, slab.token_begin, slab.tokens, slots);
  }

  // Cut by cut, each from scratch: folded in key order, sink first, or a slot each.
  __device__ void attend_cuts(const Job& job, const Slab& slab, const ThreadRows& rows, uint32_t weight) {
    using Finish = Finisher<Element, kPolicy, kInvariant>;
    const uint32_t key_end = job.key_begin + job.key_count;
    const uint32_t first = job.partial_begin + slab.token_begin - job.token_begin;
    const bool folds = (job.flags & attention::kFold) != 0;
    State folded;
    float folded_lse2[2] = {-INFINITY, -INFINITY};
    if (folds) {
      folded.clear();
      finisher_.sinks_of(job, slab.rows, folded_lse2);
    }
    uint32_t use = uses_, cuts = 0;
    for (uint32_t key = job.key_begin; key < key_end; ++cuts) {
      const uint32_t cut_end = min(key_end, (key / call_.cut + 1) * call_.cut);
      State state;
      float lse2[2];
      state.clear();
      rows_.attend({key, cut_end, 0, 1, use, weight}, slab.place, rows, state);
      Finish::normalise(state, lse2);
      if (folds) {
        Finish::fold(folded, folded_lse2, state, lse2);
      } else {
        finisher_.write_partial(job, first + cuts * job.token_count, slab.rows, state, lse2);
      }
      use += 2 * ((cut_end - key + kTileKeys - 1) / kTileKeys);
      key = cut_end;
    }
    if ((job.flags & attention::kDirect) != 0) {
      finisher_.write_out(job, slab.place, slab.rows, folded, folded_lse2);
      give_slab_back(slab);
      return;
    }
    give_slab_back(slab);
    if (folds) finisher_.write_partial(job, first, slab.rows, folded, folded_lse2);
    finisher_.arrive(job, slab.token_begin, slab.tokens, folds ? 1 : cuts);
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t warpgroup_, thread_;
  Rows rows_;
  Finisher<Element, kPolicy, kInvariant> finisher_;
  uint32_t uses_ = 0;   // of the ring before this job
  uint32_t slabs_ = 0;  // likewise
};

// Tokens without any key have no item: their rows are written here.
template <typename Element, uint32_t kHeadDim, bool kInvariant>
__device__ void write_empty_tokens(const AttendCall& call, uint32_t thread, uint32_t threads) {
  RowMerger<Element, kHeadDim, kInvariant> merger(call, thread % kWarp);
  const uint32_t tokens = call.header->tokens;
  for (uint32_t t = blockIdx.x; t < tokens; t += gridDim.x) {
    if (call.token_empty[t] == 0) continue;
    for (uint32_t head = thread / kWarp; head < call.q_heads; head += threads / kWarp) merger.merge(t, head);
  }
}

template <typename Element, uint32_t kHeadDim, bool kInvariant>
__global__ void __launch_bounds__(kBlockThreads, 1) attend_hopper(const __grid_constant__ AttendCall call) {
  extern __shared__ unsigned char memory[];
  constexpr AttendPolicy kPolicy = kAttendPolicy<kHeadDim>;
  using Shared = HopperShared<kPolicy>;
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const uint32_t warpgroup = uniform(threadIdx.x / kWarpgroup), thread = threadIdx.x % kWarpgroup;
  if (threadIdx.x == 0) {
    ptx::prefetch_map(&call.k_map);
    ptx::prefetch_map(&call.v_map);
    shared.init();
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup == 0) {
    ptx::give_registers<56>();
    if (thread < kWarp) {
      Loader<kPolicy, kInvariant>(call, shared, thread).run();
    } else {
      QueryLoader<Element, kPolicy>(call, shared, thread - kWarp).run();
      write_empty_tokens<Element, kHeadDim, kInvariant>(call, thread - kWarp, kQueryThreads);
    }
  } else {
    ptx::take_registers<224>();
    AttendingWarpgroup<Element, kPolicy, kInvariant>(call, shared, warpgroup - 1, thread).run();
  }
}

}  // namespace headwater::backend::cuda
