// The JSON of a prompt line and of an answer line, with the names and limits of the HTTP API:
//   in   {"id", "prompt": "text" | [ids], or "messages": [{"role", "content"}], "max_tokens", "temperature", "top_k",
//   "top_p",
//         "min_p", "seed", "n", "stop", "stop_token_ids", "ignore_eos", "min_tokens", "logit_bias", "presence_penalty",
//         "frequency_penalty", "repetition_penalty", "logprobs", "top_logprobs", "cache_salt", "priority"}
//   out  {"id", "choice", "prompt_tokens", "cached_tokens", "token_ids", "text", "finish_reason", "logprobs"}
// A wrong type or value is an error naming the field, the value and the limit. Unknown fields are ignored.
#pragma once

#include <string>
#include <string_view>

#include "apps/answers.h"

namespace headwater::apps {

// `defaults`: sampling of fields that the line does not name. `line_number`: gives an id to a line without one.
Result<PromptRequest> parse_prompt_line(std::string_view line, size_t line_number,
                                        const engine::SamplingParams& defaults, const Runtime& runtime);
std::string answer_line(const Answer& answer);  // without the newline

// A plain prompt, or a user message through the chat template when the model has one.
Result<std::vector<TokenId>> encode_prompt(const Runtime& runtime, std::string_view prompt, std::string_view system,
                                           bool raw);

}  // namespace headwater::apps
