#include "server/openai/choice.h"

#include <algorithm>

#include "text/utf8.h"

namespace headwater::server::openai {

using engine::FinishReason;

Choice::Choice(const text::Tokenizer& tokenizer, Settings settings)
    : tokenizer_(&tokenizer),
      detokenizer_(tokenizer),
      settings_(std::move(settings)),
      reasoning_(settings_.in_reasoning) {}

bool Choice::take(const engine::Emission& emission, Delta& delta) {
  if (finished_) return false;
  cached_tokens_ = std::max(cached_tokens_, emission.cached_tokens);
  const bool ended = emission.finish != FinishReason::kNone;
  std::string fresh;
  if (emission.token >= 0) {
    count(emission, delta);
    if (emission.finish != FinishReason::kStop) detokenizer_.append(emission.token, fresh);
  }
  if (ended) detokenizer_.finish(fresh);

  std::string text;
  bool stopped = false;
  if (tokens_ > settings_.tokens_min) {
    stopped = settings_.stops.feed(fresh, text);
    if (ended && !stopped) settings_.stops.finish(text);
  } else {
    text = std::move(fresh);
  }
  finished_ = ended || stopped;
  give(std::move(text), finished_, delta);
  if (finished_) {
    delta.finished = true;
    delta.finish = stopped ? FinishReason::kStop : emission.finish;
  }
  return stopped && !ended;
}

void Choice::count(const engine::Emission& emission, Delta& delta) {
  ++tokens_;
  if (!settings_.want_logprobs) return;
  delta.logprobs.push_back(
      {emission.token, settings_.text_offset, emission.logprob, {emission.top, emission.top + emission.top_count}});
  // A character belongs to the token of its first byte.
  if (!tokenizer_->is_control(emission.token)) {
    settings_.text_offset += static_cast<uint32_t>(text::count_characters(tokenizer_->bytes_of(emission.token)));
  }
}

void Choice::give(std::string text, bool ended, Delta& delta) {
  if (!settings_.split_reasoning) {
    delta.content += text;
    return;
  }
  reasoning_.feed(text, delta.reasoning, delta.content);
  if (ended) reasoning_.finish(delta.reasoning, delta.content);
}

}  // namespace headwater::server::openai
