// Runs requests on an engine to their end and collects their answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/runtime.h"
#include "server/openai/choice.h"

namespace headwater::apps {

struct PromptRequest {
  std::string id;
  engine::Request request;
  std::vector<std::string> stops;
  bool ignore_eos = false;  // the model's own end tokens do not end the answer
};

using TokenLogprobs = server::openai::TokenLogprob;

struct Answer {
  std::string id;
  uint32_t choice = 0;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  std::vector<TokenId> token_ids;       // generated, the stop token included
  std::vector<TokenLogprobs> logprobs;  // one a token, when asked for
  std::string text;
  engine::FinishReason finish = engine::FinishReason::kNone;
};

// Collects the answers of a batch. One thread: submit(), then step the engine and call collect() until done().
class AnswerCollector {
 public:
  AnswerCollector(const text::Tokenizer& tokenizer, engine::Engine& engine) : tokenizer_(tokenizer), engine_(engine) {}

  Status submit(const PromptRequest& prompt);
  // Takes what the engine emitted. on_text(answer index, new text) is called for text that became whole; may be null.
  void collect(const std::function<void(size_t, std::string_view)>& on_text);
  bool done() const { return open_ == 0; }
  const std::vector<Answer>& answers() const { return answers_; }  // in order of submission, choices side by side

 private:
  struct Submitted {
    engine::RequestId request;
    size_t first_answer;
  };
  void take(const engine::Emission& emission, const std::function<void(size_t, std::string_view)>& on_text);

  const text::Tokenizer& tokenizer_;
  engine::Engine& engine_;
  std::vector<Submitted> submitted_;
  std::vector<Answer> answers_;
  std::vector<server::openai::Choice> choices_;  // one an answer
  size_t open_ = 0;
};

// Submits all prompts, steps the engine until every answer has ended.
Result<std::vector<Answer>> run_to_end(const text::Tokenizer& tokenizer, engine::Engine& engine,
                                       std::span<const PromptRequest> prompts,
                                       const std::function<void(size_t, std::string_view)>& on_text = nullptr);

}  // namespace headwater::apps
