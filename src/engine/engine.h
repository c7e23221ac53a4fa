// Door of the room: continuous batching over one model.
//
//   any thread: submit(), cancel() --> inbox (bounded)
//                                        --> engine thread: step(), step(), ...
//                                              --> outbox (a bounded ring per request) --> any thread: poll()
//
// One step, as step.cc reads: take the inbox, heed signals, schedule, reserve pages, fill the step block, plan
// attention, forward, sample, commit (advance sequences, publish full pages, release finished ones), emit. The engine
// thread is the only writer of engine state; cancel and finish flags are the only backward signals. Between inbox and
// outbox a steady decode step allocates nothing. On a back end that runs ahead, a step of steady decoding is given to
// the device before the one before is collected; a call of step() still takes one answer, and an engine that is
// destroyed waits for the device first. docs/contract.md says who owns what on which thread, and when the engine runs
// ahead.
//
// Guarantees
//   1. A sequence's tokens do not depend on batch mates, arrival order, prompt chunking, preemption, the prefix
//      cache or sharing (on back ends whose info().invariant is true).
//   2. submit() refuses at once what can never fit (kInvalidArgument with both numbers) and what the queue cannot take
//      now (kExhausted); an accepted request always ends in exactly one finishing emission per choice.
//   3. A cancelled request holds no page after the next step and changes no other request.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/plan.h"
#include "core/core.h"
#include "engine/metrics.h"
#include "engine/request.h"
#include "engine/snapshot.h"
#include "kv/paged_cache.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace headwater::engine {

struct EngineConfig {
  uint32_t context_max = 0;        // tokens of a sequence, prompt and answer; 0: the model's
  uint32_t sequences_max = 64;     // running at once
  uint32_t step_tokens_max = 512;  // token budget of a step: decodes first, the rest for prompt chunks
  uint32_t queue_requests_max = 1024;
  uint32_t queue_tokens_max = 4u << 20;  // prompt tokens waiting
  uint32_t page_size = kv::kPageSizeDefault;
  uint64_t kv_bytes = 0;  // pool memory; 0: what is usual for the back end (ops::PoolMemory)
  DType kv_dtype = DType::kBF16;
  bool prefix_cache = true;
  uint32_t choices_max = 128;  // largest n
  uint32_t outbox_emissions_max =
      0;  // per request, at least its n; 0: tokens_max * n, at most 4,096. Nothing is ever dropped: a
          // request that is not polled pauses, and gives its pages up when others need them
  // cut 0: what suits the back end. invariant holds where the back end promises it too. window: the model's, whatever
  // stands here.
  attention::PlanSettings attention = {.cut = 0};
  // Off for engines that take turns on one back end, where a step of one may not stand between two of another.
  bool run_ahead = true;  // where the back end does: a step of decoding is begun before the one before has answered
  bool inject_page_fault = false;  // test: one sequence of every step reads a wrong page; its text must change
};

class Engine {
 public:
  // backend and decoder outlive the engine. clock: null for the system clock.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, model::Decoder& decoder,
                                                ops::Backend& backend, const Clock* clock = nullptr);
  virtual ~Engine() = default;

  // Any thread.
  virtual Result<RequestId> submit(Request request) = 0;
  virtual void cancel(RequestId request) = 0;
  // Ends one choice with kStop: for a caller that found a stop string in its text. Tokens made meanwhile are dropped by
  // that caller; the last emission has token -1. Unknown and ended choices are left alone.
  virtual void finish_choice(RequestId request, uint32_t choice) = 0;
  // Moves up to out.size() emissions of one request (or of any request, oldest first) to `out`; returns how many.
  virtual size_t poll(RequestId request, std::span<Emission> out) = 0;
  virtual size_t poll_any(std::span<Emission> out) = 0;
  virtual void ready(std::vector<RequestId>& out) const = 0;  // the requests that have something to poll, in no order

  // The engine thread. One step; false when there is nothing to do. An error is the device's: the requests that had a
  // row in the step, or in the one begun behind it, have ended with kFailed, the others are unharmed and step() may be
  // called again.
  virtual Result<bool> step() = 0;
  // Blocks until submit() or cancel() gives work, stop() is called or the time is over; true when there is work.
  virtual bool wait_for_work(int64_t nanoseconds) = 0;
  virtual void wake() = 0;  // any thread: wakes wait_for_work() once
  virtual void stop() = 0;  // any thread: wakes it for good

  virtual const EngineConfig& config() const = 0;    // with the defaults filled in
  virtual const EngineMetrics& metrics() const = 0;  // any thread
  virtual const kv::PagedCache& cache() const = 0;   // engine thread; its config(): any thread
  virtual const attention::Outcome& last_outcome()
      const = 0;  // engine thread; of the last step that answered, of its plan with the widest window
  virtual Snapshot snapshot() const = 0;  // engine thread
  virtual Status audit() const = 0;       // engine thread; pages, sequences and counters agree
};

}  // namespace headwater::engine
