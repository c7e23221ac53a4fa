// The engine behind its door. One class, whose work is cut over files by stage:
//   core_engine.cc  create, the calls of other threads, audit
//   step.cc         one step as a table of contents
//   ahead.cc        the step that is begun before the one before has answered
//   intake.cc       inbox, signals, how requests end
//   admission.cc    pages: reserve, preempt, attach, fork
//   batch.cc        the step block and the rows to sample
//   commit.cc       what the device's answer changes
//   report.cc       metrics and the one log line per kind of attention outcome
//   snapshot.cc     what it holds at one moment
// All members below "engine thread" belong to the thread that calls step().
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/inbox.h"
#include "engine/outbox.h"
#include "engine/scheduler.h"
#include "engine/sizing.h"

namespace headwater::engine {

// A step that the device was given, until its answer has been taken.
struct StepInFlight {
  struct Row {
    Sequence* sequence;  // null: it has ended since
    uint32_t computed;   // its tokens whose keys and values are in its pages after this step
    bool is_sampled;
  };
  std::vector<Row> rows;  // in the order of the batch
  uint32_t tokens = 0, rows_sampled = 0;
  bool is_begun = false;       // false: the back end knows nothing of it
  attention::Outcome outcome;  // of the plan with the widest window

  bool decodes() const { return rows_sampled == tokens; }  // one token a row, each sampled
};

class CoreEngine final : public Engine {
 public:
  struct Parts {  // what can fail to be made
    Sizing sizing;
    kv::PagedCache cache;
    std::vector<attention::Planner> planners;  // one for each of ModelShape::windows
    std::vector<ops::StepBlock> blocks;        // in turn, a step each
    std::unique_ptr<ops::KvPool> pool;
  };
  CoreEngine(Parts parts, model::Decoder& decoder, ops::Backend& backend, const Clock* clock);
  ~CoreEngine() override;

  Result<RequestId> submit(Request request) override;
  void cancel(RequestId request) override;
  void finish_choice(RequestId request, uint32_t choice) override;
  size_t poll(RequestId request, std::span<Emission> out) override;
  size_t poll_any(std::span<Emission> out) override;
  void ready(std::vector<RequestId>& out) const override { outbox_.ready(out); }
  void wake() override { inbox_.ring(); }
  void stop() override { inbox_.stop(); }

  Result<bool> step() override;
  bool wait_for_work(int64_t nanoseconds) override;

  const EngineConfig& config() const override { return sizing_.config; }
  const EngineMetrics& metrics() const override { return metrics_; }
  const kv::PagedCache& cache() const override { return cache_; }
  const attention::Outcome& last_outcome() const override { return outcome_; }
  Snapshot snapshot() const override;
  Status audit() const override;

 private:
  // The rows of a step, in its order.
  void take_inbox();
  void heed_signals();
  void make_schedule();
  void reserve_pages();
  bool fill_batch();  // false: nothing to compute
  Status launch();
  bool reserve_ahead();
  Status collect();
  void commit(const StepInFlight& step);
  void fail_steps();
  void emit();
  void report(const StepInFlight* step);  // null: none was computed

  // step.cc
  Status plan_attention();
  bool in_flight() const { return steps_launched_ > steps_collected_; }
  StepInFlight& newest() { return steps_[(steps_launched_ - 1) % steps_.size()]; }
  StepInFlight& oldest() { return steps_[steps_collected_ % steps_.size()]; }
  ops::StepBlock& newest_block() { return blocks_[(steps_launched_ - 1) % blocks_.size()]; }

  // ahead.cc
  void void_rows(Sequence& sequence);

  // intake.cc
  void mark_blocked();
  void finish(Sequence& sequence, FinishReason reason, Emission emission);
  void finish_without_token(Sequence& sequence, FinishReason reason);
  void sweep_lists();
  void forget_finished();
  bool can_advance() const;

  // admission.cc
  void preempt(Sequence& sequence);
  bool admit(const Admission& admission);
  void first_admission(Sequence& sequence);
  void start_running(Sequence& sequence);

  // batch.cc
  void fill_sequence(ops::StepBlock& block, const Sequence& sequence, uint32_t row, uint32_t first_token);
  ops::SampleRow sample_row(const Sequence& sequence) const;

  // commit.cc
  void append_token(Sequence& sequence, const ops::Sampled& sampled);

  // report.cc
  void report_outcome(const StepInFlight& step);
  void report_state();

  // Any thread.
  const SystemClock system_clock_;
  const Clock& clock_;
  const Sizing sizing_;
  const uint32_t vocabulary_;
  const uint32_t widest_plan_;
  std::atomic<RequestId> request_last_{0};
  Inbox inbox_;
  Outbox outbox_;
  EngineMetrics metrics_;

  // The engine thread.
  model::Decoder& decoder_;
  ops::Backend& backend_;
  std::unique_ptr<ops::KvPool> pool_;
  kv::PagedCache cache_;
  std::vector<attention::Planner> planners_;
  std::vector<ops::StepBlock> blocks_;
  std::vector<std::unique_ptr<ActiveRequest>> requests_;
  std::vector<Sequence*> running_;  // sorted by goes_before()
  std::vector<Sequence*> waiting_;  // sorted by goes_before()
  bool running_stale_ = false;      // finished ones are in the list
  bool waiting_stale_ = false;
  bool someone_finished_ = false;

  // One step's arrays, sized once.
  std::vector<std::shared_ptr<Ticket>> arrivals_;
  StepPlan step_plan_;
  std::vector<kv::PageCopy> copies_;
  std::vector<PageId> copies_from_, copies_to_;
  std::array<StepInFlight, 2> steps_;  // step i is the (i % 2)th; two only where the back end runs ahead
  uint64_t steps_launched_ = 0, steps_collected_ = 0;
  std::vector<ops::SampleRow> sample_rows_;  // of the newest step
  std::span<const ops::Sampled> sampled_;
  std::vector<Outbox::Entry> entries_;
  attention::Outcome outcome_;  // of the last step that was collected
  observe::OncePerKind logged_;
  kv::CacheCounters counted_;  // what report() has already added to the metrics
};

}  // namespace headwater::engine
