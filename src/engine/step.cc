// One step, from the inbox to the outbox. Each row says what it takes and gives.
#include "engine/core_engine.h"

namespace headwater::engine {

Result<bool> CoreEngine::step() {
  take_inbox();         // requests -> waiting sequences
  heed_signals();       // cancel and finish flags -> ended sequences, pages given back
  make_schedule();      // running, waiting, capacity -> step_plan_
  reserve_pages();      // step_plan_ -> pages, prefixes and forks; all or nothing per sequence
  if (!fill_batch()) {  // sequences -> step block, rows to sample
    emit();
    report();
    return can_advance();
  }
  Status status = plan_attention();   // page table -> a plan a window, in the step block
  if (status) status = run_device();  // step block -> keys and values in the pool, sampled_
  if (status) {
    commit();  // sampled_ -> sequences advanced, full pages published, finished ones closed
  } else {
    fail_batch();  // the requests of the step end; the engine lives
  }
  emit();    // entries_ -> rings
  report();  // counters, gauges, one log line per kind of outcome
  if (!status) return status;
  return true;
}

Status CoreEngine::plan_attention() {
  const int64_t begin_ns = clock_.now_ns();
  for (uint32_t i = 0; i < planners_.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const attention::Plan* plan, planners_[i].plan(block_.page_table()));
    block_.set_plan(*plan, i);
    if (i == widest_plan_) outcome_ = plan->outcome;
  }
  metrics_.plan_seconds.observe(1e-9 * static_cast<double>(clock_.now_ns() - begin_ns));
  return {};
}

Status CoreEngine::run_device() {
  HEADWATER_ASSIGN_OR_RETURN(const ops::DeviceBatch batch, backend_.begin_step(block_));
  if (!copies_from_.empty()) backend_.copy_pages(*pool_, copies_from_, copies_to_);
  const Result<ops::Matrix> forwarded = decoder_.forward(batch, *pool_);
  sampled_ = {};
  if (!forwarded || sample_rows_.empty()) {  // it failed, or prompt chunks only
    const Status finished = backend_.finish();
    return forwarded ? finished : forwarded.status();
  }
  backend_.sample({.logits = *forwarded, .rows = sample_rows_});
  HEADWATER_ASSIGN_OR_RETURN(sampled_, backend_.collect());
  check(sampled_.size() == batch_sampled_.size(), "the back end sampled another number of rows than asked");
  return {};
}

}  // namespace headwater::engine
