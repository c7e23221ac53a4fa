// The JSON of a prompt line and of an answer line:
//   in   the body of /v1/completions (with "prompt") or /v1/chat/completions (with "messages"), and "id"
//   out  {"id", "choice", "prompt_tokens", "cached_tokens", "token_ids", "text", "finish_reason", "logprobs"}
// Fields are checked as the HTTP API checks them (server/openai/decode.h), but that unknown ones are refused; "stream" has no
// effect.
#pragma once

#include <string>
#include <string_view>

#include "apps/answers.h"
#include "server/openai/decode.h"

namespace headwater::apps {

// What a line may ask of a model. context_max: tokens of prompt and answer; 0: the model's.
server::openai::ServedModel served_model(const Runtime& runtime, uint32_t context_max);

// `defaults`: sampling of fields that the line does not name. `line_number`: gives an id to a line without one.
Result<PromptRequest> parse_prompt_line(std::string_view line, size_t line_number,
                                        const engine::SamplingParams& defaults,
                                        const server::openai::ServedModel& served);
std::string answer_line(const Answer& answer);  // without the newline

// A plain prompt, or a user message through the chat template when the model has one.
Result<std::vector<TokenId>> encode_prompt(const Runtime& runtime, std::string_view prompt, std::string_view system,
                                           bool raw);

}  // namespace headwater::apps
