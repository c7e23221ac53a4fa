// The schedule meets the pages: what runs gets room, what does not fit gives way, what is new takes over what is there.
#include <algorithm>

#include "engine/core_engine.h"

namespace headwater::engine {

void CoreEngine::make_schedule() {
  mark_blocked();
  const Capacity capacity{.step_tokens_max = sizing_.config.step_tokens_max,
                          .sequences_free = sizing_.config.sequences_max - cache_.sequences_open(),
                          .lookahead_max = sizing_.config.sequences_max};
  schedule(running_, waiting_, capacity, cache_, step_plan_);
  for (Sequence* sequence : step_plan_.waits) {
    if (!sequence->waits_for_prefix) metrics_.waits_for_prefix.add();
    sequence->waits_for_prefix = true;
  }
}

void CoreEngine::reserve_pages() {
  copies_.clear();
  for (size_t i = 0; i < running_.size(); ++i) running_[i]->chunk = step_plan_.chunks[i];
  bool preempted = false;
  const auto preempt_one = [&](Sequence& sequence) {
    preempt(sequence);
    preempted = true;
  };
  for (Sequence* sequence : running_) {
    if (sequence->phase != Phase::kRunning || sequence->chunk == 0) continue;
    const uint32_t tokens_after = sequence->computed + sequence->chunk;
    while (sequence->phase == Phase::kRunning &&
           !cache_.reserve(sequence->slot, sequence->computed, tokens_after, copies_)) {
      preempt_one(*victim(running_));  // the sequence itself, when it is the last
    }
  }
  if (step_plan_.starved) {
    for (Sequence* sequence : running_) {
      if (sequence->phase == Phase::kRunning && sequence->blocked) preempt_one(*sequence);
    }
  }
  std::erase_if(running_, [](const Sequence* sequence) { return sequence->phase != Phase::kRunning; });
  if (preempted) return;  // the schedule counted on other pages than there are now
  for (const Admission& admission : step_plan_.admissions) {
    if (!admit(admission)) return;
  }
}

// Stays in running_ for the caller to sweep. Its full pages stay in the prefix cache until somebody needs them.
void CoreEngine::preempt(Sequence& sequence) {
  cache_.close(sequence.slot);
  sequence.slot = kNoSlot;
  sequence.phase = Phase::kWaiting;
  sequence.computed = 0;
  sequence.chunk = 0;
  waiting_.insert(std::ranges::upper_bound(waiting_, &sequence, goes_before), &sequence);
  metrics_.preemptions.add();
}

bool CoreEngine::admit(const Admission& admission) {
  Sequence& sequence = *admission.sequence;
  const auto usable = static_cast<uint32_t>(sequence.tokens().size()) - 1;  // the last token is always computed
  Result<kv::SequenceSlot> slot =
      admission.fork_from == nullptr ? cache_.open(sequence.salt()) : cache_.fork(admission.fork_from->slot);
  if (!slot) return false;
  uint32_t tokens_known = usable;
  if (admission.fork_from == nullptr) {
    tokens_known = cache_.attach_prefix(*slot, sequence.tokens(), usable);
  } else {
    cache_.trim(*slot, usable);
  }
  const uint32_t chunk = std::min(admission.tokens_max, usable + 1 - tokens_known);
  if (!cache_.reserve(*slot, tokens_known, tokens_known + chunk, copies_)) {
    cache_.close(*slot);
    return false;
  }
  sequence.slot = *slot;
  sequence.computed = tokens_known;
  sequence.chunk = chunk;
  start_running(sequence);
  return true;
}

void CoreEngine::start_running(Sequence& sequence) {
  if (!sequence.request->admitted) first_admission(sequence);
  if (sequence.storage.empty()) {
    const Request& request = sequence.request->ticket->request;
    sequence.storage.reserve(request.prompt.size() + request.sampling.tokens_max);
    sequence.storage.assign(request.prompt.begin(), request.prompt.end());
  }
  sequence.phase = Phase::kRunning;
  sequence.waits_for_prefix = false;
  waiting_.erase(std::ranges::find(waiting_, &sequence));
  running_.insert(std::ranges::upper_bound(running_, &sequence, goes_before), &sequence);
}

constexpr uint64_t kEmissionsDefault = 4096;  // of a request that waits to be polled

void CoreEngine::first_admission(Sequence& sequence) {
  ActiveRequest& active = *sequence.request;
  const Request& request = active.ticket->request;
  const auto prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  active.admitted = true;
  active.admitted_ns = clock_.now_ns();
  active.cached_tokens = sequence.computed;
  const uint64_t emissions_all = uint64_t{request.sampling.tokens_max} * request.n;
  const uint32_t asked = sizing_.config.outbox_emissions_max;
  active.emissions_max =
      static_cast<uint32_t>(asked == 0 ? std::min(emissions_all, std::max<uint64_t>(kEmissionsDefault, request.n))
                                       : std::clamp<uint64_t>(asked, request.n, emissions_all));
  outbox_.reserve(*active.ticket, active.emissions_max + request.n);  // and how each choice ended
  inbox_.leave(prompt_tokens);
  metrics_.prompt_tokens.add(prompt_tokens);
  metrics_.request_prompt_tokens.observe(prompt_tokens);
  metrics_.prefix_cache_queries.add(prompt_tokens);
  metrics_.prefix_cache_hits.add(sequence.computed);
  metrics_.queue_time.observe(1e-9 * static_cast<double>(active.admitted_ns - active.ticket->submitted_ns));
}

}  // namespace headwater::engine
