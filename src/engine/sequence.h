// One choice of a request while the engine works on it. The engine thread's alone.
//
//   waiting ---admit (attach a prefix, or fork a sibling)---> running ---> finished
//      ^------------------preempt-------------------------------'
//
// Invariants: tokens = prompt, then what was generated; `in_flight` more are on their way in steps that the device
// has, 0 or 1 between steps of the engine. The keys and values of the first `computed` tokens are in the pages of
// `slot` once these steps are done; a running sequence always has at least one token left to compute, a decoding one
// exactly one.
#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include "engine/ticket.h"

namespace headwater::engine {

inline constexpr kv::SequenceSlot kNoSlot = ~kv::SequenceSlot{0};

enum class Phase : uint8_t { kWaiting, kRunning, kFinished };

struct ActiveRequest;

struct Sequence {
  ActiveRequest* request = nullptr;
  uint32_t choice = 0;
  Phase phase = Phase::kWaiting;
  kv::SequenceSlot slot = kNoSlot;  // while running
  std::vector<TokenId> storage;     // filled and reserved to its final size at the first admission
  uint32_t computed = 0;
  uint32_t in_flight = 0;
  uint32_t row = 0;               // of the latest token in flight, among the rows that its step samples
  uint32_t chunk = 0;             // tokens to compute in this step, from `computed` on
  bool blocked = false;           // its ring is nearly full: not scheduled until somebody polls
  bool waits_for_prefix = false;  // another sequence computes its next page right now
  int64_t first_token_ns = 0;     // when its first token was made
  int64_t token_ns = 0;           // and its latest

  std::span<const TokenId> tokens() const;
  std::span<const TokenId> prompt() const;
  std::span<const TokenId> generated() const { return tokens().subspan(prompt().size()); }
  uint32_t tokens_total() const { return static_cast<uint32_t>(tokens().size()) + in_flight; }
  uint32_t generated_total() const { return static_cast<uint32_t>(generated().size()) + in_flight; }
  uint32_t tokens_left() const { return tokens_total() - computed; }
  bool awaits_its_last() const;  // the token in flight ends it
  const kv::Salt& salt() const;
};

struct ActiveRequest {
  explicit ActiveRequest(std::shared_ptr<Ticket> of) : ticket(std::move(of)), choices(ticket->request.n) {
    choices_left = ticket->request.n;
    for (uint32_t i = 0; i < choices.size(); ++i) {
      choices[i].request = this;
      choices[i].choice = i;
    }
  }

  std::shared_ptr<Ticket> ticket;
  std::vector<Sequence> choices;  // [n], never moved
  uint32_t choices_left = 0;
  bool admitted = false;  // one of its choices ran
  int64_t admitted_ns = 0;
  uint32_t emissions_max = 0;  // of its ring, the ends of its choices aside; set at its first admission
  uint32_t cached_tokens = 0;  // prompt tokens that its first admission found in the prefix cache
};

inline std::span<const TokenId> Sequence::prompt() const {
  return request->ticket->request.prompt;
}
inline std::span<const TokenId> Sequence::tokens() const {
  return storage.empty() ? prompt() : std::span<const TokenId>(storage);
}
inline bool Sequence::awaits_its_last() const {
  return generated_total() == request->ticket->request.sampling.tokens_max;
}
inline const kv::Salt& Sequence::salt() const {
  return request->ticket->salt;
}

// The order of everything: priority, arrival, choice. Smaller comes first and is preempted last.
inline bool goes_before(const Sequence* a, const Sequence* b) {
  const auto key = [](const Sequence* s) {
    return std::tuple(s->request->ticket->request.priority, s->request->ticket->id, s->choice);
  };
  return key(a) < key(b);
}

}  // namespace headwater::engine
