// The Hopper kernel's side of clocks.h. Without HEADWATER_KERNEL_CLOCKS all calls here are nothing: the machine code is the same
// as if they were not there.
//
// Every warp stamps for itself, by one lane, and waits for no other warp. What it keeps between stamps lies in shared memory, since
// attending warps have no registers to spare, and a stamp is few instructions, since cold code is slow to fetch.
#pragma once

#include "backend/cuda/attention/call.h"
#include "backend/cuda/attention/clocks.h"

namespace headwater::backend::cuda {

#ifdef HEADWATER_KERNEL_CLOCKS

struct HopperCall : AttendCall {  // the kernel's argument
  Stamp* stamps;                  // [blocks][kStampingWarps][kStampsWarp], aligned to the stamps of a warp
};

// A member of what a block shares. Called by all lanes of a warp together, but for RowPoll.
class BlockClocks {
 public:
  struct Moment {
    uint32_t clock, time;
  };

  static __device__ __forceinline__ uint32_t now() {
    uint32_t clock;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock)::"memory");
    return clock;
  }
  static __device__ __forceinline__ Moment moment() {
    Moment moment{now(), 0};
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(moment.time)::"memory");
    return moment;
  }

  // Before the warp's other stamps.
  __device__ void begins(const HopperCall& call, const Moment& at) {
    if (is_writer()) next_[warp()] = call.stamps + (blockIdx.x * kStampingWarps + warp()) * kStampsWarp + 1;
    put(Event::kBegins, at.time, at.clock);
  }
  __device__ void ends() {
    const Moment at = moment();
    put(Event::kEnds, at.time, at.clock);
    if (!is_writer()) return;
    Stamp* const stamps = next_[warp()] - place();
    write(stamps, 0, place());
  }

  // Waits until the shared clock goes on, some microseconds at most: by a warp that holds up no other one.
  __device__ void tick() {
    const Moment first = moment();
    Moment at = first;
    while (at.time == first.time && at.clock - first.clock < kTickClocks) at = moment();
    put(Event::kTick, at.time, at.clock);
  }

  __device__ __forceinline__ void stamp(Event event, uint32_t argument = 0) { put(event, argument, now()); }

  // As soon as `loaded` has come from memory. Before an attending warp's jobs or behind them: it goes where their waits are counted.
  __device__ __forceinline__ void stamp_loaded(Event event, uint32_t loaded) {
    wait_for(loaded);
    stamp(event);
  }

  __device__ __forceinline__ void job_known(uint32_t keys, bool is_shared, uint32_t few_rows, uint32_t rows) {
    if (is_writer()) waited_[warp()] = 0;
    const bool is_few = !is_shared && rows <= few_rows;
    stamp(Event::kJobKnown, keys << 9 | (is_shared ? 256u : 0u) | (is_few ? 128u : 0u) | rows);
  }
  // The warp has waited for a tile since then.
  __device__ __forceinline__ void tile_landed(uint32_t since) {
    if (is_writer()) {
      const uint32_t clock = now(), before = waited_[warp()];
      waited_[warp()] = before + max(clock - since, 1);
      if (before == 0) write_next(Event::kTileLanded, 0, clock);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void products_done() { stamp(Event::kProductsDone, waited_[warp()]); }

  // When a lane last found its row incomplete.
  struct RowPoll {
    uint32_t begin, incomplete;
    __device__ __forceinline__ void again() { incomplete = now(); }
  };
  __device__ __forceinline__ RowPoll row_poll(uint32_t loaded) {
    wait_for(loaded);
    const uint32_t begin = now();
    return {begin, begin};
  }
  __device__ __forceinline__ void rows_complete(const RowPoll& poll, bool has_row) {
    const uint32_t rows = __popc(__ballot_sync(~0u, has_row));
    if (rows == 0) return;
    put(Event::kFirstRowComplete, rows,
        poll.begin + __reduce_min_sync(~0u, has_row ? poll.incomplete - poll.begin : ~0u));
    stamp(Event::kLastRowComplete, rows);
  }

 private:
  static __device__ __forceinline__ uint32_t warp() { return threadIdx.x / 32; }
  static __device__ __forceinline__ bool is_writer() { return threadIdx.x % 32 == 0; }
  static __device__ __forceinline__ void write(Stamp* to, uint32_t clock, uint32_t what) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(clock), "r"(what) : "memory");
  }

  // An instruction that needs the value: what follows is not begun before it is there.
  __device__ __forceinline__ void wait_for(uint32_t loaded) {
    if (is_writer()) *static_cast<volatile uint32_t*>(&waited_[warp()]) = loaded;
  }

  // Of the warp's next stamp.
  __device__ __forceinline__ uint32_t place() const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(next_[warp()]) / sizeof(Stamp)) % kStampsWarp;
  }
  __device__ __forceinline__ void write_next(Event event, uint32_t argument, uint32_t clock) {
    Stamp* const to = next_[warp()];
    write(to, clock, static_cast<uint32_t>(event) | argument << 5);
    if (place() != kStampsWarp - 1) next_[warp()] = to + 1;
  }
  __device__ __forceinline__ void put(Event event, uint32_t argument, uint32_t clock) {
    if (is_writer()) write_next(event, argument, clock);
    __syncwarp();
  }

  static constexpr uint32_t kTickClocks = 8192;

  Stamp* next_[kStampingWarps];
  uint32_t waited_[kStampingWarps];
};

#else

using HopperCall = AttendCall;

class BlockClocks {
 public:
  struct Moment {};
  static __device__ uint32_t now() { return 0; }
  static __device__ Moment moment() { return {}; }
  __device__ void begins(const HopperCall&, Moment) {}
  __device__ void ends() {}
  __device__ void tick() {}
  __device__ void stamp(Event, uint32_t = 0) {}
  __device__ void stamp_loaded(Event, uint32_t) {}
  __device__ void job_known(uint32_t, bool, uint32_t, uint32_t) {}
  __device__ void tile_landed(uint32_t) {}
  __device__ void products_done() {}
  struct RowPoll {
    __device__ void again() {}
  };
  __device__ RowPoll row_poll(uint32_t) { return {}; }
  __device__ void rows_complete(RowPoll, bool) {}
};

#endif

}  // namespace headwater::backend::cuda
