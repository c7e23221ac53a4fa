// One choice of an answer: tokens in, text out, as it may be sent.
//
//   Emission -> Detokenizer (whole UTF-8 characters) -> StopStrings (holds back what may become a stop) -> ReasoningSplit -> Delta
//
// One thread at a time. Text that was given out is never taken back.
#pragma once

#include <string>
#include <vector>

#include "engine/request.h"
#include "text/text.h"

namespace headwater::server::openai {

struct TokenLogprob {
  TokenId token = -1;
  uint32_t text_offset = 0;            // characters before it in the text of the choice; control tokens have none
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
    text::StopStrings stops;  // of the whole text, reasoning included
    bool want_logprobs = false;
    bool split_reasoning = false;  // <think> ... </think> goes to Delta::reasoning
    bool in_reasoning = false;     // the prompt has opened the block already
    uint32_t tokens_min = 0;       // stop strings that begin before are text
    uint32_t text_offset = 0;      // characters of an echoed prompt: where TokenLogprob::text_offset begins
  };
  Choice(const text::Tokenizer& tokenizer, Settings settings);

  // Adds to `delta`. true: a stop string was found and the caller must end the choice in the engine
  // (Engine::finish_choice); later emissions of it are ignored. The text of a stop token is not given out.
  bool take(const engine::Emission& emission, Delta& delta);

  bool finished() const { return finished_; }
  uint32_t tokens() const { return tokens_; }  // generated, the stop token included: usage.completion_tokens
  uint32_t cached_tokens() const { return cached_tokens_; }  // of the prompt

 private:
  void count(const engine::Emission& emission, Delta& delta);
  void give(std::string text, bool ended, Delta& delta);

  const text::Tokenizer* tokenizer_;
  text::Detokenizer detokenizer_;
  Settings settings_;
  text::ReasoningSplit reasoning_;
  bool finished_ = false;
  uint32_t tokens_ = 0;
  uint32_t cached_tokens_ = 0;
};

}  // namespace headwater::server::openai
