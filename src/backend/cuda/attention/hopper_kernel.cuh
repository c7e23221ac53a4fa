// Attend and merge of one layer in one launch, whatever the plan holds: single sequences, many behind one prefix, prompt
// chunks, pieces of any of them. docs/kernels/attention-cuda.md begins with its roofline.
//
// The grid is as many blocks as the device has multiprocessors. Items of more than one slab come first and are dealt out
// to the blocks; the others are taken in the plan's order, longest first, by whichever stream is free. Loaders run ahead,
// so that memory does not wait for softmax or merges.
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
  using Finish = Finisher<Element, kPolicy, kInvariant>;

  __device__ AttendingWarpgroup(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t thread)
      : call_(call),
        shared_(shared),
        stream_(shared.stream[stream]),
        stream_index_(stream),
        thread_(thread),
        attender_(call, shared, stream, thread),
        finish_(call, shared, stream, thread) {}

  __device__ void run() {
    for (uint32_t n = 0;; ++n) {
      const Job job = stream_.take_job(n);
      sync();
      if (thread_ == 0) stream_.job_taken(n);
      if (job.tokens == kNoTokens) break;
      const QueryPlace place(queries_, job.tokens * call_.group);
      for (; queries_ < place.first; ++queries_) skip_queries();
      finish_.expect(job);
      attend(job, place);
      queries_ = place.end();
    }
    finish_.merge_rest();
  }

 private:
  __device__ void sync() const { ptx::sync_named(1 + stream_index_, kWarpgroup); }

  __device__ void skip_queries() {
    const Use<2> use(queries_);
    stream_.queries.wait_full(use);
    sync();
    if (thread_ == 0) ptx::arrive(&stream_.queries.empty[use.place]);
  }
  __device__ void give_queries_back(const QueryPlace& place) {
    sync();
    if (thread_ != 0) return;
    for (uint32_t h = 0; h < place.halves; ++h) ptx::arrive(&stream_.queries.empty[Use<2>(place.first + h).place]);
  }

  __device__ __forceinline__ void attend(const Job& job, const QueryPlace& place) {
    for (uint32_t h = 0; h < place.halves; ++h) stream_.queries.wait_full(Use<2>(place.first + h));
    const uint32_t first = place.first % 2;
    if (job.tokens * call_.group > QueryRows<Element, kPolicy>::kRowsOfQueryWarp) {
      constexpr uint32_t kTogether = kPolicy.head_dim > 128 ? 8 : 16;
      QueryRows<Element, kPolicy>::template copy<kTogether>(call_, shared_, stream_index_, job, first, thread_ / kWarp,
                                                            kWarpgroup / kWarp);
      sync();
    }
    const ThreadRows rows = attender_.rows_of(first, job.tokens * call_.group, job.key_begin + job.key_count);
    attender_.begin_job();
    if constexpr (kInvariant) {
      attend_cuts(job, place, first, rows);
    } else {
      attend_at_once(job, place, first, rows);
    }
  }

  // One state a token, in the first of its slots; the slots of further cuts stay empty.
  __device__ __forceinline__ void attend_at_once(const Job& job, const QueryPlace& place, uint32_t first,
                                                 const ThreadRows& rows) {
    const uint32_t key_end = job.key_begin + job.key_count;
    State state;
    float lse2[2];
    state.clear();
    attender_.attend({job.key_begin, key_end}, job.is_shared != 0, first, rows, state);
    Finish::normalise(state, lse2);
    const bool folds = (job.flags & attention::kFold) != 0;
    if (folds) finish_.add_sinks(job, state, lse2);
    if ((job.flags & attention::kDirect) != 0) {
      finish_.write_out(job, first, state, lse2);
      give_queries_back(place);
      return;
    }
    give_queries_back(place);
    const uint32_t slots = folds ? 1 : (key_end - 1) / call_.cut - job.key_begin / call_.cut + 1;
    finish_.write_partial(job, job.slot, state, lse2);
    for (uint32_t c = 1; c < slots; ++c) finish_.write_empty(job, job.slot + c * job.item_tokens);
    finish_.arrive(job, slots);
  }

  // Cut by cut, each from scratch: folded in key order, sink first, or a slot each.
  __device__ __forceinline__ void attend_cuts(const Job& job, const QueryPlace& place, uint32_t first,
                                              const ThreadRows& rows) {
    const uint32_t key_end = job.key_begin + job.key_count;
    const bool folds = (job.flags & attention::kFold) != 0;
    State folded;
    float folded_lse2[2] = {-INFINITY, -INFINITY};
    folded.clear();
    if (folds) finish_.sinks_of(job, folded_lse2);
    uint32_t cuts = 0;
    for (uint32_t key = job.key_begin; key < key_end; ++cuts) {
      const uint32_t cut_end = min(key_end, (key / call_.cut + 1) * call_.cut);
      State state;
      float lse2[2];
      state.clear();
      attender_.attend({key, cut_end}, job.is_shared != 0, first, rows, state);
      Finish::normalise(state, lse2);
      if (folds) {
        Finish::fold(folded, folded_lse2, state, lse2);
      } else {
        finish_.write_partial(job, job.slot + cuts * job.item_tokens, state, lse2);
      }
      key = cut_end;
    }
    if ((job.flags & attention::kDirect) != 0) {
      finish_.write_out(job, first, folded, folded_lse2);
      give_queries_back(place);
      return;
    }
    give_queries_back(place);
    if (folds) finish_.write_partial(job, job.slot, folded, folded_lse2);
    finish_.arrive(job, folds ? 1 : cuts);
  }

  const AttendCall& call_;
  Shared& shared_;
  HopperStream<kPolicy>& stream_;
  uint32_t stream_index_, thread_;
  Attender<Element, kPolicy> attender_;
  Finish finish_;
  uint32_t queries_ = 0;  // uses of the slab's halves before this job
};

template <typename Element, uint32_t kHeadDim, bool kInvariant>
__global__ void __launch_bounds__(kBlockThreads, 1) attend_hopper(const __grid_constant__ AttendCall call) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr AttendPolicy kPolicy = kAttendPolicy<kHeadDim>;
  auto& shared = *reinterpret_cast<HopperShared<kPolicy>*>(memory);
  const uint32_t warpgroup = uniform(threadIdx.x / kWarpgroup), thread = threadIdx.x % kWarpgroup;
  if (threadIdx.x == 0) {
    ptx::prefetch_map(&call.k_map);
    ptx::prefetch_map(&call.v_map);
    for (uint32_t s = 0; s < kStreams; ++s) {
      shared.stream[s].ring.init(1, kStreams);
      shared.stream[s].queries.init(kWarp, 1);
      shared.stream[s].jobs.init(1, 2);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup == 0) {
    ptx::give_registers<56>();
    const uint32_t warp = uniform(thread / kWarp), lane = thread % kWarp;
    if (warp < kStreams) {
      Loader<kPolicy, kInvariant>(call, shared, warp, lane).run();
    } else {
      QueryLoader<Element, kPolicy>(call, shared, warp - kStreams, lane).run();
    }
  } else {
    ptx::take_registers<224>();
    AttendingWarpgroup<Element, kPolicy, kInvariant>(call, shared, warpgroup - 1, thread).run();
  }
}

}  // namespace headwater::backend::cuda
