// Bodies of requests into typed values: every check of a request's fields is made here.
//
// A wrong type or value is an error naming the field, the value (cut to 80 bytes) and what is allowed. null and absent
// are the same. A field that no version of the API knows is ignored and reported (`unknown_fields`). A known field
// that we do not support is an error unless its value asks for nothing (response_format {"type": "text"}, logit_bias {},
// best_of = n). The table in fields.h drives this and the description (openapi.h).
//
// JSON: Boost.JSON, bounded by the limits below, no duplicate keys, valid UTF-8 only. Pure functions over immutable
// arguments; any thread. They may take long (tokenising megabytes), so they do not run on the network thread. A text
// that cannot fit the context whatever its tokens are (bytes / longest token) is refused before it is tokenised.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"
#include "engine/request.h"
#include "server/openai/error.h"
#include "text/text.h"

namespace headwater::server::openai {

inline constexpr uint32_t kJsonDepthMax = 64;
inline constexpr uint32_t kJsonValuesMax = 1u << 20;    // of one body: bounds the memory of its values
inline constexpr uint32_t kJsonKeysMax = 1024;          // of one object: bounds the time that colliding keys can cost
inline constexpr uint32_t kChoicesMax = 128;            // prompts x n of one request
inline constexpr uint64_t kAnswerTokensMax = 1u << 20;  // of one request: choices x max_tokens
inline constexpr uint64_t kEchoBytesMax = 8u << 20;     // of all choices
inline constexpr uint64_t kLogprobsAllMax = 1u
                                            << 19;  // of an answer that is not streamed: choices x tokens x (1 + top)
inline constexpr uint32_t kStopsMax = 16;
inline constexpr uint32_t kStopBytesMax = 4096;  // of one stop string

// What is served, as far as a request must know it. Everything outlives the requests.
struct ServedModel {
  std::vector<std::string> names;  // the first is canonical; a request may use any
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;  // null: chats are refused
  uint32_t vocabulary = 0;                            // ids below this are valid
  uint32_t context_max = 0;  // prompt and answer, tokens; the smaller of the context and the KV pool
  int64_t created = 0;       // Unix seconds
  bool reasoning = false;    // the template knows <think> ... </think>
};

enum class Endpoint : uint8_t { kCompletions, kChat };

// One request for text.
struct Generation {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;                          // the served name asked for (canonical if none was)
  std::vector<std::vector<TokenId>> prompts;  // each at least one token; chat: exactly one
  std::vector<std::string> prompt_texts;      // only with echo: what is put in front
  engine::SamplingParams sampling;  // tokens_max filled in (what fits, with the longest prompt); stop_ids include the
                                    // model's end tokens unless ignore_eos; 0 only for max_tokens 0
  bool seeded = false;              // otherwise the caller draws sampling.seed
  uint32_t n = 1;
  std::vector<std::string> stops;
  std::string cache_salt;
  int32_t priority = 0;
  bool stream = false;
  bool include_usage = false;     // one chunk with the usage at the end
  bool continuous_usage = false;  // the usage so far in every chunk
  bool echo = false;
  bool in_reasoning = false;  // the prompt ends inside a think block: the answer begins with reasoning
  std::vector<std::string> unknown_fields;
};

// What a field that the request does not name means. tokens_max 0: what fits.
inline const engine::SamplingParams kSamplingDefaults{.tokens_max = 0};

// On an error `out` is unspecified. With max_tokens 0 the caller answers without the engine.
std::optional<ApiError> decode_generation(Endpoint endpoint, std::string_view body, const ServedModel& served,
                                          Generation& out, const engine::SamplingParams& defaults = kSamplingDefaults);

// The prompt alone, for the render routes and /tokenize.
struct Tokenize {
  std::string model;
  std::vector<TokenId> ids;
  bool want_strings = false;  // return_token_strs
};
// Exactly one of content (llama.cpp: without special tokens unless asked for), prompt and messages (vLLM).
std::optional<ApiError> decode_tokenize(std::string_view body, const ServedModel& served, Tokenize& out);
// {tokens}, at most as many as the context holds; ids are checked against the vocabulary.
std::optional<ApiError> decode_detokenize(std::string_view body, const ServedModel& served, std::vector<TokenId>& out);

}  // namespace headwater::server::openai
