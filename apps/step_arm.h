// One engine of the step bench: runs a batch of chats, step by step, and accounts for each step.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/answers.h"
#include "bench/step_profile.h"
#include "bench/timed_backend.h"

namespace headwater::apps {

using Texts = std::vector<std::vector<TokenId>>;

class StepArm {
 public:
  // timer: the runtime's back end; other arms use it too, between the steps of this one.
  StepArm(Runtime& runtime, bench::TimedBackend& timer, const ops::Peaks& peaks, EngineHandle handle);

  // A phase: submit(), then step() until done().
  Status submit(bench::StepPhase phase, std::span<const PromptRequest> prompts);
  bool done() const { return collector_->done(); }
  // Every step of a prefill counts; of a decode those in which each chat had its first token, and decodes one more.
  Status step();
  // After a decode: keeps its rate. kInternal when no step counted.
  Status finish_decode();
  // On a device that replays its steps: decodes until a step counts and times each kind of its work alone, for the
  // profile of decoding. The last that the arm does.
  Status time_kinds(std::span<const PromptRequest> prompts);

  std::string name() const { return attention::to_string(engine().config().attention.sharing); }
  const engine::Engine& engine() const { return *handle_.engine; }
  Texts texts() const;  // of the last phase
  uint64_t prefill_tokens() const { return prefill_tokens_; }
  double prefill_tokens_per_s() const;
  const std::vector<double>& decode_tokens_per_s() const { return decode_tokens_per_s_; }  // a decode each
  const bench::StepProfile& prefill_profile() const { return prefill_profile_; }
  const bench::StepProfile& decode_profile() const { return decode_profile_; }
  const attention::Outcome& outcome() const { return outcome_; }  // of the last decode step that counted
  // kInternal when the arm did not run what its name says: off shared, or always did not with a legal prefix.
  Status verdict(uint32_t shared_tokens) const;

 private:
  const std::vector<Answer>& answers() const { return collector_->answers(); }

  const text::Tokenizer* tokenizer_;
  bench::TimedBackend* timer_;
  EngineHandle handle_;
  SystemClock clock_;
  bench::StepPhase phase_ = bench::StepPhase::kPrefill;
  std::optional<AnswerCollector> collector_;
  uint32_t counted_steps_ = 0;  // of this decode
  int64_t counted_nanoseconds_ = 0;
  uint32_t steps_not_flat_ = 0;
  uint64_t prefill_tokens_ = 0;
  std::vector<double> decode_tokens_per_s_;
  bench::StepProfile prefill_profile_, decode_profile_;
  attention::Outcome outcome_;
};

}  // namespace headwater::apps
