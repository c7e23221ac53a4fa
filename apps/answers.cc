#include "apps/answers.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace headwater::apps {

Status AnswerCollector::submit(const PromptRequest& prompt) {
  auto id = engine_.submit(prompt.request);
  if (!id) return error(id.status().code(), "prompt '{}': {}", prompt.id, id.status().message());
  submitted_.push_back({*id, answers_.size()});
  const server::openai::Choice::Settings settings{.stops = prompt.stops,
                                                  .want_logprobs = prompt.request.sampling.want_logprobs};
  for (uint32_t choice = 0; choice < prompt.request.n; ++choice) {
    Answer& answer = answers_.emplace_back();
    answer.id = prompt.id;
    answer.choice = choice;
    answer.prompt_tokens = static_cast<uint32_t>(prompt.request.prompt.size());
    choices_.emplace_back(tokenizer_, settings);
  }
  open_ += prompt.request.n;
  return {};
}

void AnswerCollector::collect(const std::function<void(size_t, std::string_view)>& on_text) {
  std::array<engine::Emission, 64> emissions;
  while (const size_t count = engine_.poll_any(emissions)) {
    for (const engine::Emission& emission : std::span(emissions).first(count)) take(emission, on_text);
  }
}

void AnswerCollector::take(const engine::Emission& emission,
                           const std::function<void(size_t, std::string_view)>& on_text) {
  const auto owner = std::find_if(submitted_.begin(), submitted_.end(),
                                  [&](const Submitted& entry) { return entry.request == emission.request; });
  if (owner == submitted_.end()) return;
  const size_t index = owner->first_answer + emission.choice;
  Answer& answer = answers_[index];
  server::openai::Choice& choice = choices_[index];
  if (choice.finished()) return;

  if (emission.token >= 0) answer.token_ids.push_back(emission.token);
  server::openai::Delta delta;
  if (choice.take(emission, delta)) engine_.finish_choice(emission.request, emission.choice);
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(answer.logprobs));
  answer.cached_tokens = choice.cached_tokens();
  answer.text += delta.content;
  if (on_text && !delta.content.empty()) on_text(index, delta.content);
  if (delta.finished) {
    answer.finish = delta.finish;
    --open_;
  }
}

Result<std::vector<Answer>> run_to_end(const text::Tokenizer& tokenizer, engine::Engine& engine,
                                       std::span<const PromptRequest> prompts,
                                       const std::function<void(size_t, std::string_view)>& on_text) {
  AnswerCollector collector(tokenizer, engine);
  for (const PromptRequest& prompt : prompts) {
    Status status = collector.submit(prompt);
    while (status.code() == ErrorCode::kExhausted && !collector.done()) {  // the queue is full: make room
      HEADWATER_RETURN_IF_ERROR(engine.step().status());
      collector.collect(on_text);
      status = collector.submit(prompt);
    }
    HEADWATER_RETURN_IF_ERROR(status);
  }
  while (!collector.done()) {
    auto worked = engine.step();
    if (!worked) return worked.status();
    collector.collect(on_text);
    check(*worked || collector.done(), "the engine is idle while answers are open");
  }
  while (true) {  // choices ended by a stop string leave the engine in its next step
    auto worked = engine.step();
    if (!worked) return worked.status();
    if (!*worked) break;
    collector.collect(nullptr);
  }
  return collector.answers();
}

}  // namespace headwater::apps
