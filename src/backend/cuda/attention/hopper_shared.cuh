// What the warpgroups of a block share: jobs, queries, keys and values in flight.
//
//   loader warp     takes jobs from the plan, passes them on, fills the ring of slots with tiles: K0 V0 K1 V1 ...
//   query warps     fill the slabs with the job's queries, rounded to the KV element type
//   attending       wait for a slab and for slots, and give each back when its last product has read it
//
// Barriers come in pairs: `full` counts arrivals (and bytes) of who fills, `empty` of who has read. The n-th use of a place
// waits for phase n / places; every role counts on its own and so knows which use it is at.
#pragma once

#include "backend/cuda/attention/call.h"
#include "backend/cuda/attention/policy.h"
#include "backend/cuda/attention/ptx.cuh"

namespace headwater::backend::cuda {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kWarpgroup = 128;
inline constexpr uint32_t kAttending = 2;  // warpgroups
inline constexpr uint32_t kQueryThreads = 96;
inline constexpr uint32_t kBlockThreads = (1 + kAttending) * kWarpgroup;

// Named barriers: the two attending warpgroups; warpgroup w alone (+ w, w = 1, 2); the query warps.
enum NamedBarrier : uint32_t { kBarrierAttending = 1, kBarrierWarpgroup = 1, kBarrierQueries = 4 };

// The same in all lanes, and known to be: products may only stand where no lane can be elsewhere.
__device__ __forceinline__ uint32_t uniform(uint32_t value) {
  return __shfl_sync(~0u, value, 0);
}

// One item for one KV head.
struct Job {
  uint32_t token_begin, token_count;
  uint32_t key_begin, key_count;
  uint32_t partial_begin;
  uint32_t flags;
  uint32_t kv_head;
  uint32_t slabs;  // 0: no more jobs
};

template <uint32_t kPlaces>
struct Use {  // the n-th use of a ring of places
  uint32_t place, phase;
  __device__ explicit Use(uint32_t n) : place(n % kPlaces), phase(n / kPlaces & 1) {}
};

template <uint32_t kPlaces>
struct Barriers {
  uint64_t full[kPlaces];
  uint64_t empty[kPlaces];

  __device__ void init(uint32_t fillers, uint32_t readers) {
    for (uint32_t i = 0; i < kPlaces; ++i) {
      ptx::init_barrier(&full[i], fillers);
      ptx::init_barrier(&empty[i], readers);
    }
  }
  __device__ void wait_full(Use<kPlaces> use) { ptx::wait(&full[use.place], use.phase); }
  __device__ void wait_empty(Use<kPlaces> use) { ptx::wait(&empty[use.place], use.phase ^ 1); }
};

inline constexpr uint32_t kJobs = 4;  // passed on ahead

template <AttendPolicy kPolicy>
struct HopperShared {
  alignas(1024) unsigned char slots[kPolicy.slots][kPolicy.slot_bytes];
  alignas(1024) unsigned char slabs[kSlabs][kPolicy.slab_bytes];
  Barriers<kPolicy.slots> ring;
  Barriers<kSlabs> queries;
  Barriers<kJobs> jobs;
  Job job[kJobs];
  uint32_t tokens[kSlabs][kSlabRows];     // batch token of each token of the slab
  uint32_t positions[kSlabs][kSlabRows];  // its position; ~0u: sees nothing
  float exchange_m[kSlabRows];            // of the state that one warpgroup hands to the other
  float exchange_l[kSlabRows];
  uint64_t complete[kAttending];  // bit j: token j of the slab has all its partials

  __device__ void init() {
    ring.init(1, kAttending);
    queries.init(kQueryThreads, 1);
    jobs.init(1, kAttending + 1);
  }

  // A role's next job, in the order of the loader. One thread of the role gives the place back: job_taken().
  __device__ Job take_job(uint32_t n) {
    const Use<kJobs> use(n);
    jobs.wait_full(use);
    const Job& from = job[use.place];
    return {uniform(from.token_begin),   uniform(from.token_count), uniform(from.key_begin), uniform(from.key_count),
            uniform(from.partial_begin), uniform(from.flags),       uniform(from.kv_head),   uniform(from.slabs)};
  }
  __device__ void job_taken(uint32_t n) { ptx::arrive(&jobs.empty[Use<kJobs>(n).place]); }
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
