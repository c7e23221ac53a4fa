// The way in: a bounded queue from any thread to the engine thread, and the bell that wakes it.
//
// The bounds cover what waits here and what the engine took but did not admit yet: leave() gives the room back.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/ticket.h"

namespace headwater::engine {

class Inbox {
 public:
  Inbox(uint32_t requests_max, uint32_t tokens_max);

  // Any thread.
  Status enter(uint32_t prompt_tokens);       // takes room; kExhausted names what is full
  void push(std::shared_ptr<Ticket> ticket);  // after enter()
  void leave(uint32_t prompt_tokens);         // gives room back
  void ring();                                // something changed: wakes the engine thread
  void stop();                                // for good

  // The engine thread.
  void take(std::vector<std::shared_ptr<Ticket>>& to);  // appends all that waits, in the order of arrival
  bool wait(int64_t nanoseconds);                       // true: rung since the last take()

 private:
  const uint32_t requests_max_;
  const uint32_t tokens_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Ticket>> waiting_;
  uint32_t requests_ = 0;
  uint64_t tokens_ = 0;
  bool rung_ = false;
  bool stopped_ = false;
};

}  // namespace headwater::engine
