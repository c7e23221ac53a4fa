// Answers as JSON of the OpenAI API. Pure; Boost.JSON. Every text is valid UTF-8, every number finite.
//
//   chat         delta or message {role, content, reasoning_content}; logprobs {content: [{token, logprob, bytes, top_logprobs}]}
//   completions  text; logprobs {tokens, token_logprobs, top_logprobs, text_offset}
//   both         finish_reason stop or length, else null (a cancelled or failed choice: the caller sends an error);
//                usage.prompt_tokens_details.cached_tokens always
//
// A log probability of -inf or NaN is written as -9999.0, as vLLM does. A token that is not valid UTF-8 by itself is
// written with U+FFFD; chat's `bytes` has it exactly.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/openai/choice.h"
#include "server/openai/decode.h"

namespace headwater::server::openai {

// What the objects of one answer have in common.
struct AnswerHead {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  std::string model;
  Endpoint endpoint = Endpoint::kChat;
};

struct Usage {
  uint64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// Streaming: each returns one event, "data: {json}\n\n". They run on the network thread, a few microseconds each.
std::string role_event(const AnswerHead& head, uint32_t choice);  // chat: the first chunk of a choice
// usage: the usage so far, where the client asked for it in every chunk; may be null.
std::string delta_event(const AnswerHead& head, uint32_t choice, const Delta& delta, const text::Tokenizer& tokenizer,
                        const Usage* usage = nullptr);
std::string usage_event(const AnswerHead& head, const Usage& usage);  // choices []
std::string error_event(const ApiError& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
inline constexpr std::string_view kKeepAliveEvent = ": keep-alive\n\n";

// Not streaming: `choices` hold everything that their deltas added up to.
std::string answer_json(const AnswerHead& head, std::span<const Delta> choices, const Usage& usage,
                        const text::Tokenizer& tokenizer);

std::string models_json(const ServedModel& served);
std::string model_json(const ServedModel& served, const std::string& name);
std::string tokenize_json(const Tokenize& tokens,
                          const ServedModel& served);  // tokens, count, max_model_len, token_strs
std::string detokenize_json(std::span<const TokenId> ids, const ServedModel& served);  // both `content` and `prompt`
// What a router needs to route by prefix, in vLLM's names: an object (chat), a list of objects (completions) with
// request_id, token_ids, model, sampling_params, stream, cache_salt, priority. Of several prompts, prompt i has `id`-i.
std::string render_json(const Generation& generation, const std::string& id);

}  // namespace headwater::server::openai
