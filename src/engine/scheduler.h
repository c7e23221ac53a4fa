// Who computes what in the next step. Pure: reads its arguments and nothing else.
//
// Decodes come first, one token each; what is left of the token budget goes to prompt chunks, then to new sequences,
// all in the order of goes_before(). Nobody overtakes a sequence that waits for pages or a slot. A sequence is passed
// over when
//   - a sibling is about to compute the prompt that it can fork,
//   - another running sequence (same salt, same tokens) is computing its next full page: it will attach that page,
//   - nobody polls its request,
//   - the token that it waits for is its last.
// The first two wait only on *running* sequences and hold nothing, so they cannot wait in a circle: when the other one
// is preempted or cancelled they go ahead at once. The first running sequence can take the pages of all others (see
// victim()), and any single sequence fits the pool (submit() checks), so it always advances and every sequence ends.
#pragma once

#include <span>
#include <vector>

#include "engine/sequence.h"

namespace headwater::engine {

struct Capacity {
  uint32_t step_tokens_max = 0;
  uint32_t sequences_free = 0;  // slots
  uint32_t lookahead_max = 0;   // waiting sequences looked at in one step, those that nobody polls aside
};

struct Admission {
  Sequence* sequence = nullptr;
  Sequence* fork_from = nullptr;  // the running sibling whose prompt pages it shares, or null: attach a cached prefix
  uint32_t tokens_max = 0;        // budget of its first chunk
};

struct StepPlan {
  std::vector<uint32_t> chunks;       // [running] tokens to compute; 0: none in this step
  std::vector<Admission> admissions;  // in order
  std::vector<Sequence*> waits;       // passed over because another one computes their next page
  bool starved = false;               // the first in line found no slot or too few pages

  void reserve(uint32_t sequences_max, uint32_t lookahead_max);
};

// running, waiting: sorted by goes_before(). Allocates nothing once `plan` has been reserved.
void schedule(std::span<Sequence* const> running, std::span<Sequence* const> waiting, const Capacity& capacity,
              const kv::PagedCache& cache, StepPlan& plan);

// The running sequence that gives up its pages when there are too few: one that nobody polls, else the last in order.
Sequence* victim(std::span<Sequence* const> running);

}  // namespace headwater::engine
