// The way back: one ring per request, filled by the engine thread, emptied by any thread.
//
// One lock for all rings, held for the copy of a few small records. A request stays known from open() until it has
// ended and its last emission was polled; how many may be known at once is bounded, so callers that never poll are
// refused.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/ticket.h"

namespace headwater::engine {

class Outbox {
 public:
  explicit Outbox(uint32_t requests_max);

  // Any thread.
  Status open(std::shared_ptr<Ticket> ticket);            // kExhausted: requests_max are known already
  std::shared_ptr<Ticket> find(RequestId request) const;  // null: unknown, or ended and polled
  size_t poll(RequestId request, std::span<Emission> out);
  size_t poll_any(std::span<Emission> out);       // oldest emission first
  void ready(std::vector<RequestId>& out) const;  // those that have something to poll

  // The engine thread.
  void reserve(Ticket& ticket, uint32_t emissions);  // room for this many; allocates
  struct Entry {
    Ticket* ticket;
    Emission emission;
    bool closes;  // the last one of the request
  };
  void push(std::span<const Entry> entries);

 private:
  void pop_into(Ticket& ticket, Emission& out);

  const uint32_t requests_max_;
  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::shared_ptr<Ticket>> tickets_;
  std::vector<Ticket*> ready_;  // those with something in the ring
  uint64_t serial_ = 0;
};

}  // namespace headwater::engine
