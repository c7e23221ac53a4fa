// Attend and merge of one layer in one launch, whatever the plan holds: single sequences, many behind one prefix, prompt
// chunks, pieces of any of them. docs/kernels/attention-cuda.md begins with its roofline.
//
// The grid is as many blocks as the device has multiprocessors. Items of more than one slab come first and are dealt out
// to the blocks; the others are taken in the plan's order, longest first (place_of_job), by whichever stream is free.
// Loaders run ahead, so that memory does not wait for softmax or merges.
#pragma once

#include "backend/cuda/attention/hopper_attend.cuh"
#include "backend/cuda/attention/hopper_finish.cuh"
#include "backend/cuda/attention/hopper_load.cuh"
#include "backend/cuda/attention/hopper_merge.cuh"
#include "backend/cuda/overlap.cuh"

namespace headwater::backend::cuda {

template <typename Element, AttendPolicy kPolicy, bool kInvariant>
class AttendingWarpgroup {
 public:
  using Shared = HopperShared<kPolicy>;
  using State = RowsState<kPolicy.head_dim>;
  using Finish = Finisher<Element, kPolicy>;

  __device__ AttendingWarpgroup(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call),
        shared_(shared),
        stream_(shared.stream[stream]),
        stream_index_(stream),
        thread_(thread),
        slots_(shared, stream),
        finish_(call, shared, stream, thread) {}

  __device__ void run() {
    wait_for_kernels_ahead();
    shared_.clocks.stamp(Event::kAheadEnded);
    for (uint32_t n = 0;; ++n) {
      const Job& job = stream_.wait_job(n);
      const uint32_t rows = uniform(job.tokens) * call_.group;
      if (rows == 0) break;
      shared_.clocks.job_known(job.key_count, job.is_shared != 0, kInvariant ? 0 : kPolicy.few_rows, rows);
      const QueryPlace place(queries_, rows);
      for (; queries_ < place.first; ++queries_) skip_queries();
      for (uint32_t h = 0; h < place.halves; ++h) stream_.queries.wait_full(Use<2>(place.first + h));
      shared_.clocks.stamp(Event::kQueriesThere);
      if (kInvariant || uniform(job.is_shared) != 0 || rows > kPolicy.few_rows) {
        attend_many(job, rows, place);
      } else {
        attend_few(job, rows, place);
      }
      stream_.give_job_back(n, thread_ % kWarp);
      queries_ = place.end();
      shared_.clocks.stamp(Event::kJobFinished);
    }
    finish_.settle();
    shared_.clocks.stamp(Event::kJobsDone);
    if (stream_.step_partials > 0)
      RowMerger<Element, kPolicy, kInvariant>(call_, shared_, stream_index_, thread_).run();
  }

 private:
  __device__ void skip_queries() {
    const Use<2> use(queries_);
    stream_.queries.wait_full(use);
    give_queries_back(use);
  }
  __device__ void give_queries_back(const QueryPlace& place) {
    for (uint32_t h = 0; h < place.halves; ++h) give_queries_back(Use<2>(place.first + h));
  }
  __device__ void give_queries_back(Use<2> use) {
    __syncwarp();
    if (thread_ % kWarp == 0) ptx::arrive(stream_.queries.empty(use));
  }

  __device__ __forceinline__ void attend_few(const Job& job, uint32_t rows, const QueryPlace& place) {
    static_assert(kPolicy.few_rows <= QueryRows<Element, kPolicy>::kRowsOfQueryWarp,
                  "queries of few rows are copied ahead");
    if (rows <= 8) {
      attend_eights<1>(job, rows, place);
    } else {
      attend_eights<kPolicy.few_rows / 8>(job, rows, place);
    }
  }
  template <uint32_t kEights>
  __device__ __forceinline__ void attend_eights(const Job& job, uint32_t rows, const QueryPlace& place) {
    FewRows<Element, kPolicy, kEights> few(call_, shared_, stream_index_, thread_);
    few.attend(job, place.first % 2, rows, slots_);
    finish_.finish(job, place.first % 2, rows, few, slots_);
    give_queries_back(place);
  }

  __device__ __forceinline__ void attend_many(const Job& job, uint32_t rows, const QueryPlace& place) {
    const uint32_t first = place.first % 2;
    if (rows > QueryRows<Element, kPolicy>::kRowsOfQueryWarp) {
      QueryRows<Element, kPolicy>::template copy<4>(call_, shared_, stream_index_, job, first, thread_ / kWarp, kWarps);
      ptx::sync_named(1 + stream_index_, kWarpgroup);
      shared_.clocks.stamp(Event::kQueriesCopied);
    }
    Attender<Element, kPolicy> attender(call_, shared_, stream_index_, thread_);
    const ThreadRows visible = attender.rows_of(first, rows, job.key_begin + job.key_count);
    if constexpr (kInvariant) {
      attend_cuts(job, place, visible, attender);
    } else {
      attend_at_once(job, place, visible, attender);
    }
  }

  // One state a token.
  __device__ __forceinline__ void attend_at_once(const Job& job, const QueryPlace& place, const ThreadRows& visible,
                                                 Attender<Element, kPolicy>& attender) {
    const uint32_t key_begin = uniform(job.key_begin), key_end = key_begin + uniform(job.key_count);
    const uint32_t first = place.first % 2;
    State state;
    float lse2[2];
    state.clear();
    attender.attend({key_begin, key_end}, uniform(job.is_shared) != 0, first, visible, slots_, state);
    shared_.clocks.products_done();
    Finish::normalise(state, lse2);
    if ((job.flags & attention::kFold) != 0) finish_.add_sinks(job, state, lse2);
    if ((job.flags & attention::kDirect) != 0) {
      finish_.write_out(job, first, state, lse2);
      give_queries_back(place);
      return;
    }
    give_queries_back(place);
    finish_.settle();
    finish_.write_partial(job, job.slot, state, lse2);
    finish_.leave_unsettled(job, 1);
  }

  // Cut by cut, each from scratch: folded in key order, sink first, or a slot each.
  __device__ __forceinline__ void attend_cuts(const Job& job, const QueryPlace& place, const ThreadRows& visible,
                                              Attender<Element, kPolicy>& attender) {
    const uint32_t key_begin = uniform(job.key_begin), key_end = key_begin + uniform(job.key_count);
    const uint32_t first = place.first % 2;
    const bool folds = (job.flags & attention::kFold) != 0;
    State folded;
    float folded_lse2[2] = {-INFINITY, -INFINITY};
    folded.clear();
    if (folds) finish_.sinks_of(job, folded_lse2);
    uint32_t cuts = 0;
    finish_.settle();
    for (uint32_t key = key_begin; key < key_end; ++cuts) {
      const uint32_t cut_end = min(key_end, (key / call_.cut + 1) * call_.cut);
      State state;
      float lse2[2];
      state.clear();
      attender.attend({key, cut_end}, uniform(job.is_shared) != 0, first, visible, slots_, state);
      Finish::normalise(state, lse2);
      if (folds) {
        Finish::fold(folded, folded_lse2, state, lse2);
      } else {
        finish_.write_partial(job, job.slot + cuts * job.item_tokens, state, lse2);
      }
      key = cut_end;
    }
    shared_.clocks.products_done();
    if ((job.flags & attention::kDirect) != 0) {
      finish_.write_out(job, first, folded, folded_lse2);
      give_queries_back(place);
      return;
    }
    give_queries_back(place);
    if (folds) finish_.write_partial(job, job.slot, folded, folded_lse2);
    finish_.leave_unsettled(job, folds ? 1 : cuts);
  }

  const AttendCall& call_;
  Shared& shared_;
  HopperStream<kPolicy>& stream_;
  uint32_t stream_index_, thread_;
  SlotReader<kPolicy> slots_;
  Finish finish_;
  uint32_t queries_ = 0;  // uses of the slab's halves before this job
};

template <typename Element, uint32_t kHeadDim, bool kInvariant>
__global__ void __launch_bounds__(kBlockThreads, 1) attend_hopper(const __grid_constant__ HopperCall call) {
  const BlockClocks::Moment began = BlockClocks::moment();
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr AttendPolicy kPolicy = kAttendPolicy<kHeadDim>;
  auto& shared = *reinterpret_cast<HopperShared<kPolicy>*>(memory);
  let_next_begin();
  const uint32_t warp = uniform(threadIdx.x / kWarp), lane = threadIdx.x % kWarp;
  if (warp < kStreams && ptx::is_elected()) {
    ptx::prefetch_map(warp == 0 ? &call.k_map : &call.v_map);
    shared.stream[warp].ring.init(1, kStreams * kWarps);
    shared.stream[warp].queries.init(kWarp, kWarps);
    shared.stream[warp].jobs.init(1, kWarps + 1);
    ptx::fence_barrier_init();
  }
  shared.clocks.begins(call, began);
  Loader<kPolicy, kInvariant> loader(call, shared, warp, lane);
  if (warp < kStreams) loader.ask();  // on its way beside the barrier
  __syncthreads();
  if (warp < kWarps) {
    ptx::give_registers<40>();
    if (warp < kStreams) {
      loader.run();
    } else {
      QueryLoader<Element, kPolicy>(call, shared, warp - kStreams, lane).run();
    }
  } else {
    ptx::take_registers<232>();
    AttendingWarpgroup<Element, kPolicy, kInvariant>(call, shared, warp / kWarps - 1, threadIdx.x % kWarpgroup).run();
  }
  shared.clocks.ends();
}

}  // namespace headwater::backend::cuda
