// The only place that changes sequences after the device has answered.
#include <algorithm>

#include "engine/core_engine.h"

namespace headwater::engine {

void CoreEngine::commit(const StepInFlight& step) {
  metrics_.tokens_computed.add(step.tokens);
  for (const StepInFlight::Row& row : step.rows) {
    if (row.sequence != nullptr) cache_.publish(row.sequence->slot, row.sequence->tokens(), row.computed);
  }
  const ops::Sampled* sampled = sampled_.data();
  for (const StepInFlight::Row& row : step.rows) {
    if (!row.is_sampled) continue;
    if (row.sequence != nullptr) append_token(*row.sequence, *sampled);
    ++sampled;
  }
}

void CoreEngine::append_token(Sequence& sequence, const ops::Sampled& sampled) {
  const Ticket& ticket = *sequence.request->ticket;
  --sequence.in_flight;
  if (sampled.error != ErrorCode::kOk) {
    observe::logger().warn("request {}: no token can be chosen ({}); the choice ends", ticket.id,
                           to_string(sampled.error));
    return finish_without_token(sequence, FinishReason::kFailed);
  }
  const SamplingParams& sampling = ticket.request.sampling;
  const bool is_first = sequence.generated().empty();
  const int64_t now_ns = clock_.now_ns();
  sequence.storage.push_back(sampled.token);
  metrics_.generation_tokens.add();
  if (is_first) {
    sequence.first_token_ns = now_ns;
    metrics_.prefill_time.observe(1e-9 * static_cast<double>(now_ns - sequence.request->admitted_ns));
    metrics_.time_to_first_token.observe(1e-9 * static_cast<double>(now_ns - ticket.submitted_ns));
  } else {
    metrics_.inter_token_latency.observe(1e-9 * static_cast<double>(now_ns - sequence.token_ns));
  }
  sequence.token_ns = now_ns;

  Emission emission{.request = ticket.id,
                    .choice = sequence.choice,
                    .token = sampled.token,
                    .cached_tokens = is_first ? sequence.request->cached_tokens : 0,
                    .made_ns = now_ns,
                    .logprob = sampling.want_logprobs ? sampled.logprob : 0,
                    .top_count = std::min(sampled.top_count, sampling.top_logprobs)};
  std::copy_n(sampled.top, emission.top_count, emission.top);
  const bool is_stop = !sampling.ignore_stop_ids && std::ranges::count(sampling.stop_ids, sampled.token) > 0;
  if (is_stop) {
    finish(sequence, FinishReason::kStop, emission);
  } else if (sequence.generated().size() == sampling.tokens_max) {
    finish(sequence, FinishReason::kLength, emission);
  } else {
    entries_.push_back({sequence.request->ticket.get(), emission, false});
  }
}

// A step went wrong on the device: what it should have written cannot be trusted, nor what the one behind it made of
// that. So nothing of them is published and every request that had a row in them ends.
void CoreEngine::fail_steps() {
  // The device has left their pages alone when they are given away; the first error is the one that counts. Without a step
  // begun what is on the device is another engine's.
  if (oldest().is_begun) static_cast<void>(backend_.finish());
  for (; in_flight(); ++steps_collected_) {
    for (const StepInFlight::Row& row : oldest().rows) {
      if (row.sequence == nullptr) continue;
      for (Sequence& sibling : row.sequence->request->choices) {
        if (sibling.phase != Phase::kFinished) finish_without_token(sibling, FinishReason::kFailed);
      }
    }
  }
}

}  // namespace headwater::engine
