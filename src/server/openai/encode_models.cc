// The answers that are not generated text: models, token ids, rendered prompts.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "server/openai/encode.h"
#include "server/openai/encode_logprobs.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;

json::object model_card(const ServedModel& served, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", served.created},
          {"owned_by", "headwater"},
          {"root", served.names.front()},
          {"parent", nullptr},
          {"max_model_len", served.context_max}};
}

json::array ids_array(std::span<const TokenId> ids) {
  json::array array;
  array.reserve(ids.size());
  for (const TokenId id : ids) array.emplace_back(id);
  return array;
}

json::object sampling_object(const Generation& generation) {
  const engine::SamplingParams& sampling = generation.sampling;
  return {{"n", generation.n},
          {"max_tokens", sampling.tokens_max},
          {"min_tokens", sampling.tokens_min},
          {"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"seed", generation.seeded ? json::value(sampling.seed) : json::value(nullptr)},
          {"stop", json::value_from(generation.stops)},
          {"stop_token_ids", ids_array(sampling.stop_ids)},
          {"logprobs", sampling.want_logprobs ? json::value(sampling.top_logprobs) : json::value(nullptr)}};
}

json::object rendered(const Generation& generation, size_t prompt, const std::string& id) {
  return {{"request_id", id},
          {"token_ids", ids_array(generation.prompts[prompt])},
          {"model", generation.model},
          {"sampling_params", sampling_object(generation)},
          {"stream", generation.stream},
          {"cache_salt", generation.cache_salt.empty() ? json::value(nullptr) : json::value(generation.cache_salt)},
          {"priority", generation.priority}};
}

}  // namespace

std::string models_json(const ServedModel& served) {
  json::array models;
  for (const std::string& name : served.names) models.push_back(model_card(served, name));
  return json::serialize(json::object{{"object", "list"}, {"data", std::move(models)}});
}

std::string model_json(const ServedModel& served, const std::string& name) {
  return json::serialize(model_card(served, name));
}

std::string tokenize_json(const Tokenize& tokens, const ServedModel& served) {
  json::value strings = nullptr;
  if (tokens.want_strings) {
    json::array& list = strings.emplace_array();
    for (const TokenId id : tokens.ids) list.emplace_back(token_text(*served.tokenizer, id));
  }
  return json::serialize(json::object{{"tokens", ids_array(tokens.ids)},
                                      {"count", tokens.ids.size()},
                                      {"max_model_len", served.context_max},
                                      {"token_strs", std::move(strings)}});
}

std::string detokenize_json(std::span<const TokenId> ids, const ServedModel& served) {
  const std::string text = served.tokenizer->decode(ids, false);
  return json::serialize(json::object{{"content", text}, {"prompt", text}});
}

std::string render_json(const Generation& generation, const std::string& id) {
  if (generation.endpoint == Endpoint::kChat) return json::serialize(rendered(generation, 0, id));
  json::array list;
  for (size_t i = 0; i < generation.prompts.size(); ++i) {
    list.push_back(rendered(generation, i, fmt::format("{}-{}", id, i)));
  }
  return json::serialize(list);
}

}  // namespace headwater::server::openai
