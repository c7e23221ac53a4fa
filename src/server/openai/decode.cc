#include "server/openai/decode.h"

#include <algorithm>
#include <charconv>

#include "server/openai/body.h"
#include "server/openai/messages.h"
#include "server/openai/prompt.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;
using Failure = std::optional<ApiError>;

Failure read_model(const Body& body, const ServedModel& served, std::string& model) {
  model = body.has("model") ? body.string("model") : served.names.front();
  if (std::ranges::find(served.names, model) != served.names.end()) return std::nullopt;
  return ApiError{.status = 404,
                  .message = fmt::format("the model \"{}\" is not served here; use {}, or leave \"model\" out",
                                         cut_text(model), served.names.front()),
                  .type = "not_found_error",
                  .param = "model",
                  .code = "model_not_found"};
}

Failure read_stops(const Body& body, std::vector<std::string>& stops) {
  const json::value* value = body.find("stop");
  if (value == nullptr) return std::nullopt;
  const bool several = value->is_array();
  const std::span<const json::value> list =
      several ? std::span<const json::value>(value->as_array()) : std::span<const json::value>(value, 1);
  if (list.size() > kStopsMax) return body.wrong("stop");
  for (const json::value& stop : list) {
    const json::string* text = stop.if_string();
    if (text == nullptr || text->empty() || text->size() > kStopBytesMax) return body.wrong("stop");
    stops.emplace_back(*text);
  }
  return std::nullopt;
}

// "12", and not "+12", "012" or "1e1": one spelling of an id, so that none comes twice.
std::optional<TokenId> parse_id(std::string_view text, uint32_t vocabulary) {
  uint32_t id = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (failed != std::errc() || end != text.data() + text.size() || id >= vocabulary) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return static_cast<TokenId>(id);
}

Failure read_logit_bias(const Body& body, const ServedModel& served, std::vector<ops::LogitBias>& out) {
  const json::value* value = body.find("logit_bias");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return body.wrong("logit_bias");
  for (const auto& [name, entry] : value->as_object()) {
    const std::string_view key(name.data(), name.size());
    const auto id = parse_id(key, served.vocabulary);
    const auto bias = number_within(entry, -100, 100, false);
    if (!id || !bias) {
      return ApiError{.message = fmt::format("\"logit_bias\" has \"{}\": {}; expected token ids from 0 to {} and "
                                             "biases from -100 to 100",
                                             cut_text(key), quoted(entry), served.vocabulary - 1),
                      .param = "logit_bias"};
    }
    out.push_back({*id, *bias});
  }
  return std::nullopt;
}

Failure read_logprobs(const Body& body, engine::SamplingParams& sampling) {
  const json::value* logprobs = body.find("logprobs");
  sampling.top_logprobs = static_cast<uint32_t>(body.integer("top_logprobs", sampling.top_logprobs));
  if (logprobs != nullptr && !logprobs->is_bool()) {
    if (body.has("top_logprobs")) {
      return ApiError{.message = "\"top_logprobs\" goes with \"logprobs\": true; a number of logprobs says it already",
                      .param = "top_logprobs"};
    }
    sampling.want_logprobs = true;
    sampling.top_logprobs = static_cast<uint32_t>(logprobs->to_number<int64_t>());
    return std::nullopt;
  }
  sampling.want_logprobs = logprobs == nullptr ? sampling.want_logprobs : logprobs->as_bool();
  if (sampling.top_logprobs == 0 || sampling.want_logprobs) return std::nullopt;
  return ApiError{
      .message = fmt::format("\"top_logprobs\" is {}, but \"logprobs\" is not true; set it", sampling.top_logprobs),
      .param = "top_logprobs"};
}

Failure read_stream(const Body& body, Generation& out) {
  out.stream = body.boolean("stream", false);
  const json::value* options = body.find("stream_options");
  if (options == nullptr) return std::nullopt;
  if (!options->is_object()) return body.wrong("stream_options");
  if (!out.stream) {
    return ApiError{.message = "\"stream_options\" is given, but \"stream\" is not true; set it, or leave them out",
                    .param = "stream_options"};
  }
  for (const auto& [name, value] : options->as_object()) {
    if (value.is_null()) continue;
    bool* flag = name == "include_usage"            ? &out.include_usage
                 : name == "continuous_usage_stats" ? &out.continuous_usage
                                                    : nullptr;
    if (flag == nullptr) continue;
    if (!value.is_bool()) return wrong_value("stream_options." + std::string(name), value, "true or false");
    *flag = value.as_bool();
  }
  return std::nullopt;
}

Failure read_stop_ids(const Body& body, const ServedModel& served, engine::SamplingParams& sampling) {
  if (!body.boolean("ignore_eos", false)) {
    const std::vector<TokenId> ends = served.tokenizer->end_of_generation();
    sampling.stop_ids.insert(sampling.stop_ids.end(), ends.begin(), ends.end());
  }
  const json::value* ids = body.find("stop_token_ids");
  if (ids == nullptr) return std::nullopt;
  const auto count_max = static_cast<size_t>(find_field("stop_token_ids", kInGeneration)->max);
  return read_token_ids("stop_token_ids", *ids, served, count_max, sampling.stop_ids);
}

Failure read_sampling(const Body& body, const ServedModel& served, Generation& out) {
  engine::SamplingParams& sampling = out.sampling;
  sampling.tokens_min = static_cast<uint32_t>(body.integer("min_tokens", sampling.tokens_min));
  sampling.temperature = body.number("temperature", sampling.temperature);
  sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(body.integer("top_k", sampling.top_k), 0));
  sampling.top_p = body.number("top_p", sampling.top_p);
  sampling.min_p = body.number("min_p", sampling.min_p);
  sampling.repetition_penalty = body.number("repetition_penalty", sampling.repetition_penalty);
  sampling.frequency_penalty = body.number("frequency_penalty", sampling.frequency_penalty);
  sampling.presence_penalty = body.number("presence_penalty", sampling.presence_penalty);
  const int64_t seed = body.integer("seed", -1);
  out.seeded = seed != -1;
  if (out.seeded) sampling.seed = static_cast<uint64_t>(seed);
  out.n = static_cast<uint32_t>(body.integer("n", 1));
  if (body.integer("best_of", out.n) != out.n) {
    return ApiError{.message = fmt::format("\"best_of\" is {} and \"n\" {}; expected the same: choices are not ranked",
                                           body.integer("best_of", 0), out.n),
                    .param = "best_of"};
  }
  if (auto failed = read_logprobs(body, sampling)) return failed;
  if (auto failed = read_stops(body, out.stops)) return failed;
  if (auto failed = read_stop_ids(body, served, sampling)) return failed;
  return read_logit_bias(body, served, sampling.logit_bias);
}

// Fills in tokens_max. The longest prompt decides.
Failure fit_context(const Body& body, const ServedModel& served, Generation& out) {
  size_t prompt = 0;
  for (const std::vector<TokenId>& ids : out.prompts) prompt = std::max(prompt, ids.size());
  const std::string_view prompt_field = out.endpoint == Endpoint::kChat ? "messages" : "prompt";
  std::string_view field = "max_tokens";
  if (body.has("max_completion_tokens")) {
    field = "max_completion_tokens";
  } else if (!body.has("max_tokens") && body.integer("n_predict", -1) >= 0) {
    field = "n_predict";
  }
  engine::SamplingParams& sampling = out.sampling;
  const bool asked = body.has(field) || sampling.tokens_max > 0;
  sampling.tokens_max = static_cast<uint32_t>(body.integer(field, sampling.tokens_max));
  const size_t room = served.context_max - std::min<size_t>(prompt, served.context_max);
  if (room == 0 && !(asked && sampling.tokens_max == 0 && prompt == served.context_max)) {
    return prompt_too_long(prompt_field, prompt, true, served);
  }
  if (!asked) sampling.tokens_max = static_cast<uint32_t>(room);
  if (sampling.tokens_max > room) {
    return ApiError{.message = fmt::format("This model's maximum context length is {} tokens, but \"{}\" has {} tokens "
                                           "and \"{}\" is {}, {} in all; lower \"{}\" to {} or shorten the prompt",
                                           served.context_max, prompt_field, prompt, field, sampling.tokens_max,
                                           prompt + sampling.tokens_max, field, room),
                    .param = std::string(field),
                    .code = "context_length_exceeded"};
  }
  if (sampling.tokens_min > sampling.tokens_max) {
    return ApiError{.message = fmt::format("\"min_tokens\" is {}, but an answer has at most {} tokens; lower it",
                                           sampling.tokens_min, sampling.tokens_max),
                    .param = "min_tokens"};
  }
  return std::nullopt;
}

// Answers that would take far more memory than their requests.
Failure bound_answer(const Generation& out) {
  uint64_t echoed = 0;
  for (const std::string& text : out.prompt_texts) echoed += text.size() * out.n;
  if (echoed > kEchoBytesMax) {
    return ApiError{
        .message = fmt::format("\"echo\" would repeat {} bytes of prompts; expected at most {}: leave it out, "
                               "or lower \"n\"",
                               echoed, kEchoBytesMax),
        .param = "echo"};
  }
  const engine::SamplingParams& sampling = out.sampling;
  const uint64_t choices = out.prompts.size() * out.n;
  if (choices * sampling.tokens_max > kAnswerTokensMax) {
    return ApiError{
        .message = fmt::format("{} choices of {} tokens are {}; expected at most {} in one request: lower \"n\" or "
                               "\"max_tokens\"",
                               choices, sampling.tokens_max, choices * sampling.tokens_max, kAnswerTokensMax),
        .param = "max_tokens"};
  }
  if (out.stream || !sampling.want_logprobs) return std::nullopt;
  const uint64_t logprobs = uint64_t{out.prompts.size()} * out.n * sampling.tokens_max * (1 + sampling.top_logprobs);
  if (logprobs <= kLogprobsAllMax) return std::nullopt;
  return ApiError{
      .message = fmt::format("\"logprobs\" may be {} in all ({} choices of {} tokens, {} alternatives each); "
                             "expected at most {} in one piece: set \"stream\", or lower \"max_tokens\"",
                             logprobs, out.prompts.size() * out.n, sampling.tokens_max, sampling.top_logprobs,
                             kLogprobsAllMax),
      .param = "logprobs"};
}

Failure read_generation(const Body& body, const ServedModel& served, Generation& out) {
  if (auto failed = read_model(body, served, out.model)) return failed;
  if (auto failed = read_stream(body, out)) return failed;
  if (auto failed = read_sampling(body, served, out)) return failed;
  out.cache_salt = body.string("cache_salt");
  out.priority = static_cast<int32_t>(body.integer("priority", 0));
  out.unknown_fields = body.unknown_fields();
  if (out.endpoint == Endpoint::kChat) {
    if (auto failed = read_messages(body, served, out.prompts.emplace_back(), out.in_reasoning)) return failed;
  } else {
    out.echo = body.boolean("echo", false);
    if (out.echo && out.sampling.want_logprobs) {
      return ApiError{.message =
                          "\"echo\" with \"logprobs\" is not supported: the prompt has no log probabilities here; "
                          "leave one of them out",
                      .param = "echo",
                      .code = "unsupported_parameter"};
    }
    if (auto failed = read_prompts(body, served, out.prompts, out.echo ? &out.prompt_texts : nullptr)) return failed;
  }
  if (auto failed = fit_context(body, served, out)) return failed;
  return bound_answer(out);
}

}  // namespace

std::optional<ApiError> decode_generation(Endpoint endpoint, std::string_view text, const ServedModel& served,
                                          Generation& out, const engine::SamplingParams& defaults) {
  Body body;
  if (auto failed = Body::parse(text, endpoint == Endpoint::kChat ? kInChat : kInCompletions, body)) return failed;
  out = {};
  out.endpoint = endpoint;
  out.sampling = defaults;
  return read_generation(body, served, out);
}

std::optional<ApiError> decode_tokenize(std::string_view text, const ServedModel& served, Tokenize& out) {
  Body body;
  if (auto failed = Body::parse(text, kInTokenize, body)) return failed;
  out = {};
  if (auto failed = read_model(body, served, out.model)) return failed;
  if (int{body.has("content")} + int{body.has("prompt")} + int{body.has("messages")} != 1) {
    return ApiError{.message = "give exactly one of \"prompt\", \"messages\" and \"content\""};
  }
  out.want_strings = body.boolean("return_token_strs", false);
  bool in_reasoning = false;
  if (body.has("messages")) return read_messages(body, served, out.ids, in_reasoning);
  const std::string_view field = body.has("prompt") ? "prompt" : "content";
  const bool special = body.boolean("add_special_tokens", body.boolean("add_special", field == "prompt"));
  return encode_text(field, body.string(field), special, served, out.ids);
}

std::optional<ApiError> decode_detokenize(std::string_view text, const ServedModel& served, std::vector<TokenId>& out) {
  Body body;
  if (auto failed = Body::parse(text, kInDetokenize, body)) return failed;
  out.clear();
  std::string model;
  if (auto failed = read_model(body, served, model)) return failed;
  return read_token_ids("tokens", *body.find("tokens"), served, served.context_max, out);
}

}  // namespace headwater::server::openai
