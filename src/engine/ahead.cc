// Whether a step may be begun while the one before is still on the device, and with which pages.
#include "engine/core_engine.h"

namespace headwater::engine {

// Only decoding runs ahead: every sequence of the step in flight gets one token, whatever it will be, and the next
// step decodes one more of each. What needs the answers (an admission, a token that penalties count) or could take
// somebody's pages waits until they are here. Who ends in the step in flight by a stop token has a row too many,
// which void_rows() drops.
bool CoreEngine::reserve_ahead() {
  if (!sizing_.config.run_ahead || !newest().decodes()) return false;
  make_schedule();
  if (!step_plan_.admissions.empty()) return false;
  uint32_t rows = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    if (step_plan_.starved && sequence.blocked) return false;  // it is to be preempted
    if (step_plan_.chunks[i] == 0) continue;
    if (sequence.tokens_left() > 1) return false;  // a prompt
    if (sequence.in_flight > 0 && ops::counts_tokens(sample_row(sequence))) return false;
    ++rows;
  }
  if (rows == 0 || rows > cache_.pages_available()) return false;  // a row takes one at most: a new page or a copy
  reserve_pages();
  return true;
}

// The sequence has ended: what steps in flight still give it is nobody's. Its pages may go at once, for the device
// writes what it was told to before whatever their next holder writes.
void CoreEngine::void_rows(Sequence& sequence) {
  for (uint64_t i = steps_collected_; i < steps_launched_; ++i) {
    for (StepInFlight::Row& row : steps_[i % steps_.size()].rows) {
      if (row.sequence == &sequence) row.sequence = nullptr;
    }
  }
  sequence.in_flight = 0;
}

}  // namespace headwater::engine
