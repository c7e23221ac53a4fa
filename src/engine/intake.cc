// Requests coming in, and requests coming to an end before or after their time.
#include <algorithm>
#include <utility>

#include "engine/core_engine.h"

namespace headwater::engine {

void CoreEngine::take_inbox() {
  arrivals_.clear();
  inbox_.take(arrivals_);
  for (auto& ticket : arrivals_) {
    requests_.push_back(std::make_unique<ActiveRequest>(std::move(ticket)));
    std::vector<Sequence>& choices = requests_.back()->choices;
    auto place = std::ranges::upper_bound(waiting_, choices.data(), goes_before);  // nobody comes between them
    place = waiting_.insert(place, choices.size(), nullptr);
    for (Sequence& sequence : choices) *place++ = &sequence;
  }
}

void CoreEngine::heed_signals() {
  for (const auto& request : requests_) {
    Ticket& ticket = *request->ticket;
    const bool signalled =
        ticket.signalled.load(std::memory_order_relaxed) && ticket.signalled.exchange(false, std::memory_order_acquire);
    if (!signalled) continue;
    for (Sequence& sequence : request->choices) {
      if (sequence.phase == Phase::kFinished) continue;
      if (ticket.cancelled.load(std::memory_order_relaxed)) {
        finish_without_token(sequence, FinishReason::kCancelled);
      } else if (ticket.choices_stopped[sequence.choice].load(std::memory_order_relaxed)) {
        finish_without_token(sequence, FinishReason::kStop);
      }
    }
  }
  sweep_lists();
}

// Whose ring has no room left after a step in which every choice emits, and after those in flight.
void CoreEngine::mark_blocked() {
  for (const auto& request : requests_) {
    if (!request->admitted) continue;  // thousands of choices may wait
    uint32_t room_used = request->ticket->ring.size() + request->choices_left;
    for (const Sequence& sequence : request->choices) room_used += sequence.in_flight;
    for (Sequence& sequence : request->choices) sequence.blocked = room_used > request->emissions_max;
  }
}

void CoreEngine::finish_without_token(Sequence& sequence, FinishReason reason) {
  finish(sequence, reason,
         {.request = sequence.request->ticket->id,
          .choice = sequence.choice,
          .cached_tokens = sequence.generated().empty() ? sequence.request->cached_tokens : 0,
          .made_ns = clock_.now_ns()});
}

// Ends a choice in whatever phase it is and gives its pages back. `emission` is its last one. Stays in its list until
// sweep_lists(): thousands may end in one step.
void CoreEngine::finish(Sequence& sequence, FinishReason reason, Emission emission) {
  ActiveRequest& request = *sequence.request;
  (sequence.phase == Phase::kRunning ? running_stale_ : waiting_stale_) = true;
  if (sequence.in_flight > 0) void_rows(sequence);
  if (sequence.slot != kNoSlot) cache_.close(sequence.slot);
  sequence.slot = kNoSlot;
  sequence.phase = Phase::kFinished;
  --request.choices_left;
  emission.finish = reason;
  entries_.push_back({request.ticket.get(), emission, request.choices_left == 0});
  metrics_.finished[static_cast<size_t>(reason)].add();
  if (const size_t tokens = sequence.generated().size(); tokens > 0) {
    const double decode_s = 1e-9 * static_cast<double>(sequence.token_ns - sequence.first_token_ns);
    metrics_.request_generation_tokens.observe(static_cast<double>(tokens));
    metrics_.decode_time.observe(decode_s);
    if (tokens > 1) metrics_.time_per_output_token.observe(decode_s / static_cast<double>(tokens - 1));
  }
  if (request.choices_left > 0) return;
  someone_finished_ = true;
  if (!request.admitted) inbox_.leave(static_cast<uint32_t>(request.ticket->request.prompt.size()));
  metrics_.end_to_end.observe(1e-9 * static_cast<double>(clock_.now_ns() - request.ticket->submitted_ns));
}

void CoreEngine::sweep_lists() {
  const auto finished = [](const Sequence* sequence) { return sequence->phase == Phase::kFinished; };
  if (std::exchange(running_stale_, false)) std::erase_if(running_, finished);
  if (std::exchange(waiting_stale_, false)) std::erase_if(waiting_, finished);
}

void CoreEngine::forget_finished() {
  if (!someone_finished_) return;
  std::erase_if(requests_, [](const auto& request) { return request->choices_left == 0; });
  someone_finished_ = false;
}

void CoreEngine::emit() {
  if (!entries_.empty()) outbox_.push(entries_);
  entries_.clear();
  sweep_lists();
  forget_finished();
}

// Whether a further step may do something without a new signal or a poll.
bool CoreEngine::can_advance() const {
  const auto free_to_go = [](const Sequence* sequence) { return !sequence->blocked; };
  return std::ranges::any_of(running_, free_to_go) || std::ranges::any_of(waiting_, free_to_go);
}

}  // namespace headwater::engine
