#include "apps/step_arm.h"

#include <algorithm>

namespace headwater::apps {
namespace {

using bench::StepPhase;

bench::StepProfile profile_of(StepPhase phase, const Runtime& runtime, const ops::Peaks& peaks,
                              const engine::EngineConfig& config) {
  const model::ModelShape& shape = runtime.model->shape();
  return {phase, peaks, shape.kv_shape(config.page_size, 0, config.kv_dtype), shape.q_heads};
}

}  // namespace

StepArm::StepArm(Runtime& runtime, bench::TimedBackend& timer, const ops::Peaks& peaks, EngineHandle handle)
    : tokenizer_(runtime.tokenizer.get()),
      timer_(&timer),
      handle_(std::move(handle)),
      prefill_profile_(profile_of(StepPhase::kPrefill, runtime, peaks, handle_.engine->config())),
      decode_profile_(profile_of(StepPhase::kDecode, runtime, peaks, handle_.engine->config())) {}

Status StepArm::submit(StepPhase phase, std::span<const PromptRequest> prompts) {
  phase_ = phase;
  counted_steps_ = 0;
  counted_nanoseconds_ = 0;
  collector_.emplace(*tokenizer_, *handle_.engine);
  for (const PromptRequest& prompt : prompts) HEADWATER_RETURN_IF_ERROR(collector_->submit(prompt));
  return {};
}

Status StepArm::step() {
  const engine::EngineMetrics& metrics = engine().metrics();
  const bench::WorkTotals work_before = timer_->totals();
  const uint64_t computed_before = metrics.tokens_computed.value();
  const uint64_t generated_before = metrics.generation_tokens.value();
  const bool all_decode = std::ranges::none_of(answers(), [](const Answer& a) { return a.token_ids.empty(); });
  const int64_t begin = clock_.now_ns();
  auto worked = handle_.engine->step();
  const int64_t took = clock_.now_ns() - begin;
  if (!worked) return worked.status();
  check(*worked, "the engine is idle while answers are open");
  collector_->collect(nullptr);

  const bench::WorkTotals work = timer_->totals().since(work_before);
  const uint64_t computed = metrics.tokens_computed.value() - computed_before;
  const uint64_t generated = metrics.generation_tokens.value() - generated_before;
  if (phase_ == StepPhase::kPrefill) {
    prefill_tokens_ += computed;
    prefill_profile_.add_step(work, took, engine().last_outcome());
  } else if (all_decode && computed == answers().size() && generated == answers().size()) {
    ++counted_steps_;
    counted_nanoseconds_ += took;
    outcome_ = engine().last_outcome();
    steps_not_flat_ += outcome_.path != attention::Path::kFlat;
    decode_profile_.add_step(work, took, outcome_);
  }
  return {};
}

Status StepArm::finish_decode() {
  if (counted_steps_ == 0) {
    return error(ErrorCode::kInternal, "arm {}: no step had all {} chats decoding; raise --max-tokens", name(),
                 answers().size());
  }
  const auto tokens = static_cast<double>(uint64_t{counted_steps_} * answers().size());
  decode_tokens_per_s_.push_back(tokens * 1e9 / static_cast<double>(counted_nanoseconds_));
  return {};
}

Status StepArm::time_kinds(std::span<const PromptRequest> prompts) {
  bench::StepProfile profile = decode_profile_;  // without the steps that are made for this
  timer_->record_kinds();
  HEADWATER_RETURN_IF_ERROR(submit(StepPhase::kDecode, prompts));
  while (counted_steps_ == 0 && !done()) HEADWATER_RETURN_IF_ERROR(step());
  HEADWATER_ASSIGN_OR_RETURN(const bench::WorkTotals kinds, timer_->time_kinds());
  profile.set_kinds(kinds);
  decode_profile_ = profile;
  return {};
}

Texts StepArm::texts() const {
  Texts texts;
  for (const Answer& answer : answers()) texts.push_back(answer.token_ids);
  return texts;
}

double StepArm::prefill_tokens_per_s() const {
  return static_cast<double>(prefill_tokens_) * 1e3 / (prefill_profile_.ms() * prefill_profile_.steps());
}

Status StepArm::verdict(uint32_t shared_tokens) const {
  const engine::EngineConfig& config = engine().config();
  const attention::PlanSettings& settings = config.attention;
  if (settings.sharing == attention::Sharing::kOff && steps_not_flat_ > 0) {
    return error(ErrorCode::kInternal, "the arm 'off' took a shared path in {} steps", steps_not_flat_);
  }
  const uint32_t pages_cut = (settings.cut + config.page_size - 1) / config.page_size;
  const bool must_share = settings.sharing == attention::Sharing::kAlways &&
                          answers().size() >= settings.shared_members_min &&
                          shared_tokens / config.page_size >= std::max(pages_cut, settings.shared_pages_min);
  if (must_share && steps_not_flat_ < decode_profile_.steps()) {
    return error(ErrorCode::kInternal, "the arm 'always' ran flat in {} steps ({})",
                 decode_profile_.steps() - steps_not_flat_, attention::to_string(outcome_.reason()));
  }
  return {};
}

}  // namespace headwater::apps
