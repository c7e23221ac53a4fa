// One step, from the inbox to the outbox. Each row says what it takes and gives. Every call that finds work takes one
// answer from the device: of the step before, if that was left there, while the device computes this one.
#include "engine/core_engine.h"

namespace headwater::engine {

Result<bool> CoreEngine::step() {
  take_inbox();    // requests -> waiting sequences
  heed_signals();  // cancel and finish flags -> ended sequences, pages given back
  Status status;
  if (!in_flight()) {
    make_schedule();      // running, waiting, capacity -> step_plan_
    reserve_pages();      // step_plan_ -> pages, prefixes and forks; all or nothing per sequence
    if (!fill_batch()) {  // sequences -> step block, rows to sample
      emit();
      report(nullptr);
      return can_advance();
    }
    status = launch();  // step block -> work on the device
  }
  if (status && reserve_ahead()) {  // one decode more of each sequence, where that is certain already
    check(fill_batch(), "a step ahead has rows");
    status = launch();
  }
  const StepInFlight& step = oldest();
  if (status) status = collect();  // the device's answer -> sampled_
  if (status) {
    commit(step);  // sampled_ -> sequences advanced, full pages published, finished ones closed
  } else {
    fail_steps();  // the requests of the steps in flight end; the engine lives
  }
  emit();                            // entries_ -> rings
  report(status ? &step : nullptr);  // counters, gauges, one log line per kind of outcome
  if (!status) return status;
  return true;
}

Status CoreEngine::launch() {
  HEADWATER_RETURN_IF_ERROR(plan_attention());  // page table -> a plan a window, in the step block
  HEADWATER_ASSIGN_OR_RETURN(const ops::DeviceBatch batch, backend_.begin_step(newest_block()));
  newest().is_begun = true;
  if (!copies_from_.empty()) backend_.copy_pages(*pool_, copies_from_, copies_to_);
  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix logits, decoder_.forward(batch, *pool_));
  if (!sample_rows_.empty()) backend_.sample({.logits = logits, .rows = sample_rows_});
  return {};
}

Status CoreEngine::plan_attention() {
  const int64_t begin_ns = clock_.now_ns();
  ops::StepBlock& block = newest_block();
  for (uint32_t i = 0; i < planners_.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const attention::Plan* plan, planners_[i].plan(block.page_table()));
    block.set_plan(*plan, i);
    if (i == widest_plan_) newest().outcome = plan->outcome;
  }
  metrics_.plan_seconds.observe(1e-9 * static_cast<double>(clock_.now_ns() - begin_ns));
  return {};
}

Status CoreEngine::collect() {
  const StepInFlight& step = oldest();
  sampled_ = {};
  if (step.rows_sampled == 0) {  // prompt chunks only
    HEADWATER_RETURN_IF_ERROR(backend_.finish());
  } else {
    HEADWATER_ASSIGN_OR_RETURN(sampled_, backend_.collect());
  }
  check(sampled_.size() == step.rows_sampled, "the back end sampled another number of rows than asked");
  ++steps_collected_;
  return {};
}

}  // namespace headwater::engine
