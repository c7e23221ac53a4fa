// What a request's threads share: the request itself (never written after submit()), the signals that go to the engine,
// and the ring that comes back.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "kv/paged_cache.h"

namespace headwater::engine {

// Emissions that were not polled yet. A fixed array; the record is small because few requests ask for log
// probabilities.
class EmissionRing {
 public:
  // Room for `capacity` emissions with up to `top` log probabilities each; keeps what it holds.
  void resize(uint32_t capacity, uint32_t top);
  void push(const Emission& emission, uint64_t serial);
  Emission pop();

  uint64_t front_serial() const { return records_[begin_].serial; }
  uint32_t size() const { return size_.load(std::memory_order_relaxed); }
  bool empty() const { return size() == 0; }

 private:
  struct Record {
    uint64_t serial;
    RequestId request;
    uint32_t choice;
    TokenId token;
    uint32_t cached_tokens;
    int64_t made_ns;
    float logprob;
    uint8_t top_count;
    FinishReason finish;
  };
  uint32_t top_ = 0;
  uint32_t begin_ = 0;
  std::atomic<uint32_t> size_{0};  // the engine thread reads it without the lock, to see how full the ring is
  std::vector<Record> records_;
  std::vector<ops::TokenLogprob> tops_;  // [records][top_]
};

struct Ticket {
  Ticket(RequestId request_id, Request asked, int64_t now_ns)
      : id(request_id),
        request(std::move(asked)),
        salt(kv::make_salt(request.cache_salt)),
        submitted_ns(now_ns),
        choices_stopped(std::make_unique<std::atomic<bool>[]>(request.n)) {}

  const RequestId id;
  const Request request;
  const kv::Salt salt;
  const int64_t submitted_ns;

  // Any thread to the engine. `signalled` is set last and read first.
  std::atomic<bool> signalled{false};
  std::atomic<bool> cancelled{false};
  std::unique_ptr<std::atomic<bool>[]> choices_stopped;  // [n]

  // Guarded by the Outbox's lock.
  EmissionRing ring;
  bool closed = false;  // every choice has ended: once the ring is empty, nothing follows
};

}  // namespace headwater::engine
