// One choice of an answer: tokens in, text out, as it may be sent.
//
//   Emission -> Detokenizer (whole UTF-8 characters) -> StopStrings (holds back what may become a stop) -> ReasoningSplit -> Delta
//
// One thread at a time. Text that was given out is never taken back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "text/text.h"

namespace headwater::server::openai {

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0;                   // may be -inf here; never in JSON
  std::vector<ops::TokenLogprob> top;  // as many as were asked for
};

// What one or more emissions added. Pieces may be empty: text is held back, or the token has none.
struct Delta {
  std::string content;
  std::string reasoning;
  std::vector<TokenLogprob> logprobs;  // of the tokens since the last delta, when asked for
  bool finished = false;
  engine::FinishReason finish = engine::FinishReason::kNone;

  bool empty() const { return content.empty() && reasoning.empty() && logprobs.empty() && !finished; }
};

class Choice {
 public:
  struct Settings {
    std::vector<std::string> stops;
    bool want_logprobs = false;
    bool split_reasoning = false;  // <think> ... </think> goes to Delta::reasoning
    bool in_reasoning = false;     // the prompt has opened the block already
  };
  Choice(const text::Tokenizer& tokenizer, Settings settings);

  // Adds to `delta`. true: a stop string was found and the caller must end the choice in the engine
  // (Engine::finish_choice); later emissions of it are ignored.
  bool take(const engine::Emission& emission, Delta& delta);

  bool finished() const { return finished_; }
  uint32_t tokens() const { return tokens_; }  // generated, the stop token included: usage.completion_tokens
  uint32_t cached_tokens() const { return cached_tokens_; }  // of the prompt

 private:
  text::Detokenizer detokenizer_;
  text::StopStrings stops_;
  Settings settings_;
  bool finished_ = false;
  uint32_t tokens_ = 0;
  uint32_t cached_tokens_ = 0;
};

}  // namespace headwater::server::openai
