// What the warps of a block share: jobs, queries, keys and values in flight.
//
//   loader warp   takes jobs from the plan, passes them on, fills the ring of slots with tiles: K0 V0 K1 V1 ...
//   query warp    passes a job's tokens on and fills the slab with its queries, rounded to the KV element type (those of many
//                 rows are left to the attending warpgroup); jobs of up to 32 rows use half of the slab, so that the next
//                 job's queries are there in time
//   attending     waits for queries and for slots, and gives each back when its last product has read it
//
// Barriers come in pairs: `full` counts arrivals (and bytes) of who fills, `empty` of the warps that have read: those of
// both streams for slots (a warp whose stream alone reads it counts twice). The n-th use of a place waits for phase
// n / places. Phases are known by parity alone, so a reader must see every use of a place: a stream's ring is read by its
// own warpgroup always and by the other one in the jobs of both, which come first.
#pragma once

#include "backend/cuda/attention/call.h"
#include "backend/cuda/attention/clocks.cuh"
#include "backend/cuda/attention/policy.h"
#include "backend/cuda/attention/ptx.cuh"

namespace headwater::backend::cuda {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kWarpgroup = 128;
inline constexpr uint32_t kWarps = kWarpgroup / kWarp;
inline constexpr uint32_t kBlockThreads = (1 + kStreams) * kWarpgroup;
inline constexpr uint32_t kHalfSlabRows = kSlabRows / 2;

// The same in all lanes, and known to be: products may only stand where no lane can be elsewhere.
__device__ __forceinline__ uint32_t uniform(uint32_t value) {
  return __shfl_sync(~0u, value, 0);
}

// One slab of an item for one KV head.
struct alignas(16) Job {
  uint32_t token_begin, tokens;  // plan positions
  uint32_t key_begin, key_count;
  uint32_t slot;         // of the first token's first partial
  uint32_t item_tokens;  // slots from one cut to the next
  uint32_t flags;
  uint32_t kv_head;
  uint32_t is_shared;  // by both streams
};
inline constexpr uint32_t kNoTokens = 0;  // Job::tokens: there are no more jobs

// In AttendCall::arrived: a job's token and query head, both counted inside the job.
__device__ __forceinline__ uint32_t arrived_at(const AttendCall& call, const Job& job, uint32_t token, uint32_t head) {
  return (job.token_begin + token) * call.q_heads + job.kv_head * call.group + head;
}

template <uint32_t kPlaces>
struct Use {  // the n-th use of a ring of places
  uint32_t place, phase;
  __device__ explicit Use(uint32_t n) : place(n % kPlaces), phase(n / kPlaces & 1) {}
};

template <uint32_t kPlaces>
class Barriers {
 public:
  __device__ void init(uint32_t fillers, uint32_t readers) {
    for (uint32_t i = 0; i < 2 * kPlaces; ++i) ptx::init_barrier(&barriers_[i], i < kPlaces ? fillers : readers);
  }
  __device__ uint64_t* full(Use<kPlaces> use) { return &barriers_[use.place]; }
  __device__ uint64_t* empty(Use<kPlaces> use) { return &barriers_[kPlaces + use.place]; }
  __device__ void wait_full(Use<kPlaces> use) { ptx::wait(full(use), use.phase); }
  __device__ void wait_empty(Use<kPlaces> use) { ptx::wait(empty(use), use.phase ^ 1); }

 private:
  uint64_t barriers_[2 * kPlaces];  // full, then empty
};

inline constexpr uint32_t kJobs = 4;  // passed on ahead

// What the query warp passes on of each token of a slab.
struct alignas(8) SlabToken {
  uint32_t token;     // of the batch
  uint32_t position;  // ~0u: sees nothing
};

template <AttendPolicy kPolicy>
struct HopperStream {
  Barriers<kPolicy.slots> ring;
  Barriers<2> queries;  // halves of the slab
  Barriers<kJobs> jobs;
  Job job[kJobs];
  SlabToken tokens[kSlabRows];          // of a job from the slab's second half: from kHalfSlabRows on
  uint32_t step_tokens, step_partials;  // of the header; there with the job that says that there are no more

  // The n-th job, in the order of the loader. It stays until each reader (a warp) has given it back.
  __device__ const Job& wait_job(uint32_t n) {
    const Use<kJobs> use(n);
    jobs.wait_full(use);
    return job[use.place];
  }
  __device__ void give_job_back(uint32_t n, uint32_t lane) {
    __syncwarp();
    if (lane == 0) ptx::arrive(jobs.empty(Use<kJobs>(n)));
  }
};

// Which halves of the slab a job's queries take: one, or from the first on both.
struct QueryPlace {
  uint32_t first;  // use of the halves, counted over the stream
  uint32_t halves;
  __device__ QueryPlace(uint32_t uses, uint32_t rows)
      : first(rows > kHalfSlabRows ? uses + uses % 2 : uses), halves(rows > kHalfSlabRows ? 2 : 1) {}
  __device__ uint32_t end() const { return first + halves; }
};

template <AttendPolicy kPolicy>
struct HopperShared {
  // [panel][row][64 columns]. Not last: products over the second half of a slab read 64 rows all the same.
  alignas(1024) unsigned char slabs[kStreams][kPolicy.slab_bytes];
  alignas(1024) unsigned char slots[kStreams][kPolicy.slots][kPolicy.slot_bytes];
  HopperStream<kPolicy> stream[kStreams];
  [[no_unique_address]] BlockClocks clocks;
};

// Byte of the 16-byte piece `piece` of a row, in panels of kPanelRows rows and 64 columns, swizzled.
template <uint32_t kPanelRows>
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t piece) {
  return piece / 8 * (kPanelRows * 128) + row * 128 + (piece % 8 ^ row % 8) * 16;
}

// A place of a ring as an attending warpgroup reads it.
struct SlotUse {
  uint32_t ring, use;
  __device__ SlotUse next() const { return {ring, use + 1}; }
};

// Where an attending warpgroup is in the rings.
template <AttendPolicy kPolicy>
class SlotReader {
 public:
  __device__ SlotReader(HopperShared<kPolicy>& shared, uint32_t stream) : shared_(shared), stream_(stream) {}

  // The next slot of the stream's own ring; waits for it.
  __device__ unsigned char* wait_next() { return wait(next(stream_)); }
  __device__ SlotUse last() const { return {stream_, (stream_ == 0 ? uses_[0] : uses_[1]) - 1}; }
  __device__ SlotUse next(uint32_t ring) { return {ring, ring == 0 ? uses_[0]++ : uses_[1]++}; }
  __device__ unsigned char* place(SlotUse at) const { return shared_.slots[at.ring][Use<kPolicy.slots>(at.use).place]; }
  __device__ unsigned char* wait(SlotUse at) const {
    const uint32_t since = BlockClocks::now();
    shared_.stream[at.ring].ring.wait_full(Use<kPolicy.slots>(at.use));
    shared_.clocks.tile_landed(since);
    return place(at);
  }
  // By every warp for itself, of a slot that no other stream reads.
  __device__ void give_back_by_warp(SlotUse at, uint32_t lane) const {
    if (lane == 0) give_back(at, kStreams);
  }
  // By one thread, for all warps of its warpgroup.
  __device__ void give_back_by_one(SlotUse at, bool is_shared, uint32_t thread) const {
    if (thread == 0) give_back(at, is_shared ? kWarps : kStreams * kWarps);
  }

 private:
  __device__ void give_back(SlotUse at, uint32_t arrivals) const {
    ptx::arrive(shared_.stream[at.ring].ring.empty(Use<kPolicy.slots>(at.use)), arrivals);
  }

  HopperShared<kPolicy>& shared_;
  uint32_t stream_;
  uint32_t uses_[kStreams] = {0, 0};
};

// The tiles of a job, the same for all roles: keys from the beginning of the job, but none across a cut where states are
// kept by cut.
struct Tile {
  uint32_t begin, end;  // keys
};
template <uint32_t kTileKeys, bool kByCut>
__device__ __forceinline__ Tile tile_at(uint32_t key, uint32_t key_end, uint32_t cut) {
  uint32_t end = min(key + kTileKeys, key_end);
  if (kByCut) end = min(end, (key / cut + 1) * cut);
  return {key, end};
}

}  // namespace headwater::backend::cuda
