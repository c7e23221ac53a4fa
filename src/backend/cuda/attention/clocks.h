// What the Hopper attend kernel stamps in builds with HEADWATER_KERNEL_CLOCKS: where its time goes, warp by warp.
//
//   stamps [block][warp of the block][kStampsWarp]: place 0 says where the next one would go, the others follow in order
//
// bench/baselines/attention_timeline.py draws them. Other builds have none of this.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace headwater::backend::cuda {

// The names and numbers are those of bench/baselines/kernel_clocks.py.
enum class Event : uint32_t {
  // Every warp.
  kBegins = 1,      // its first instruction; argument: nanoseconds of a clock that all multiprocessors share
  kAheadEnded = 2,  // kernels ahead have ended
  kEnds = 3,        // its last instruction; argument likewise

  // Loader warps.
  kItemKnown = 4,    // the header and the first item were read
  kFirstCopied = 5,  // the copies of the first tile are on their way
  kJobCopied = 6,    // all copies of a job are on their way
  kQueueEmpty = 7,

  // Query warps.
  kQueriesFilled = 8,  // a job's tokens and, if it has few rows, queries
  kTick = 19,          // when it has nothing left to do: the shared clock has just gone on; argument as kBegins

  // Attending warps.
  kJobKnown = 9,  // argument: keys * 512, + 256: of both streams, + 128: of few rows, + rows
  kQueriesThere = 10,
  kQueriesCopied = 20,  // those of many rows, which attending warps copy
  kTileLanded = 11,     // the job's first one
  kProductsDone = 12,   // the job's last ones; argument: clocks that the warp waited for tiles, the first one too
  kJobFinished = 13,    // its output or partials are written
  kJobsDone = 14,

  // Attending warps where rows are merged.
  kStreamsMet = 15,
  kFirstRowComplete = 16,  // of up to 32 rows of the warp: when it last lacked partials; argument: rows
  kLastRowComplete = 17,   // all of these rows
  kRowsWritten = 18,
};

struct alignas(8) Stamp {
  uint32_t clock;  // of the multiprocessor, the low half; place 0: 0
  uint32_t what;   // event + 32 * argument, of which the low 27 bits are kept; place 0: the next place
};

inline constexpr uint32_t kStampsWarp = 1024;   // a warp that has more of them writes the last place again and again
inline constexpr uint32_t kStampingWarps = 12;  // of a block

// Where the kernels of this process stamp: room for `blocks` blocks, made at the first call, on its device. Kernels of another device
// cannot be timed in the same process.
cudaError_t stamps_of(uint32_t blocks, Stamp** stamps);

}  // namespace headwater::backend::cuda
