// What an engine holds at one moment, for people who look: the pool, the sequences, and which of them have pages in common.
#pragma once

#include <span>
#include <vector>

#include "attention/plan.h"
#include "engine/request.h"

namespace headwater::engine {

inline constexpr size_t kSnapshotWaitingMax = 256;

struct SnapshotSequence {
  RequestId request = 0;
  uint32_t choice = 0;
  bool running = false;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  uint32_t computed_tokens = 0;  // whose keys and values are in pages
  uint32_t pages = 0;
  int32_t run = -1;  // the deepest run of `runs` it lies in; -1: shares nothing
};

// A maximal stretch of pages that two or more running sequences have in common.
struct SnapshotRun {
  int32_t parent = -1;  // the run in front of it; -1: begins at position 0
  uint32_t pages = 0;
  uint32_t tokens = 0;
  uint32_t members = 0;
};

struct Snapshot {
  uint32_t page_size = 0;
  uint32_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_held = 0;
  uint32_t sequences_waiting = 0;
  std::vector<SnapshotSequence> sequences;  // all that run, then the first kSnapshotWaitingMax that wait
  std::vector<SnapshotRun> runs;            // parents before children
  attention::Outcome last_step;
};

// The runs of page lists; sequence i lies in run run_of[i] (-1: none). Page lists in any order; O(pages of all lists).
std::vector<SnapshotRun> shared_runs(std::span<const std::span<const PageId>> page_lists, uint32_t page_size,
                                     std::vector<int32_t>& run_of);

}  // namespace headwater::engine
