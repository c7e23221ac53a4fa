#include "apps/prompt_json.h"

#include <boost/json.hpp>

#include "core/shown.h"
#include "server/openai/decode.h"
#include "server/openai/fields.h"

namespace headwater::apps {
namespace {

namespace json = boost::json;
using server::openai::Endpoint;

Status wrong_line(size_t line_number, std::string_view message) {
  return error(ErrorCode::kInvalidArgument, "line {}: {}", line_number, message);
}

std::string unknown_field(std::string_view name, Endpoint endpoint) {
  const auto place = endpoint == Endpoint::kChat ? server::openai::kInChat : server::openai::kInCompletions;
  std::string known = "id";
  for (const server::openai::Field& field : server::openai::fields()) {
    if (field.endpoints & place) known.append(", ").append(field.name);
  }
  return fmt::format("{} is no field of a prompt; those are {}", quoted(name), known);
}

}  // namespace

server::openai::ServedModel served_model(const Runtime& runtime, uint32_t context_max) {
  const model::ModelShape& shape = runtime.model->shape();
  return {.names = {shape.name},
          .tokenizer = runtime.tokenizer.get(),
          .chat_template = runtime.chat_template.get(),
          .vocabulary = shape.vocabulary,
          .context_max = context_max == 0 ? shape.context_max : context_max};
}

Result<PromptRequest> parse_prompt_line(std::string_view line, size_t line_number,
                                        const engine::SamplingParams& defaults,
                                        const server::openai::ServedModel& served) {
  boost::system::error_code failed;
  const json::value value = json::parse(line, failed);  // for what the HTTP API has not: "id", and either source
  if (failed || !value.is_object()) {
    return wrong_line(line_number,
                      fmt::format("not a JSON object: {}", failed ? failed.message() : line.substr(0, 60)));
  }
  const json::object& object = value.as_object();
  if (object.contains("prompt") == object.contains("messages")) {
    return wrong_line(line_number, "a line needs exactly one of \"prompt\" and \"messages\"");
  }
  const Endpoint endpoint = object.contains("messages") ? Endpoint::kChat : Endpoint::kCompletions;
  server::openai::Generation generation;
  if (auto wrong = server::openai::decode_generation(endpoint, line, served, generation, defaults)) {
    return wrong_line(line_number, wrong->message);
  }
  for (const std::string& field : generation.unknown_fields) {
    if (field != "id") return wrong_line(line_number, unknown_field(field, endpoint));
  }
  if (generation.prompts.size() != 1) {
    return wrong_line(line_number, fmt::format("\"prompt\" has {} prompts; a line has one", generation.prompts.size()));
  }
  if (generation.sampling.tokens_max == 0) return wrong_line(line_number, "\"max_tokens\" is 0; ask for at least 1");
  if (generation.echo) return wrong_line(line_number, "\"echo\" is true; answers hold new text only");
  const json::value* id = object.if_contains("id");
  PromptRequest prompt;
  prompt.id = id == nullptr || id->is_null() ? std::to_string(line_number)
              : id->is_string()              ? std::string(id->as_string())
                                             : json::serialize(*id);
  prompt.request = {.prompt = std::move(generation.prompts[0]),
                    .sampling = std::move(generation.sampling),
                    .n = generation.n,
                    .cache_salt = std::move(generation.cache_salt),
                    .priority = generation.priority};
  prompt.stops = std::move(generation.stops);
  return prompt;
}

std::string answer_line(const Answer& answer) {
  json::object line{{"id", answer.id},
                    {"choice", answer.choice},
                    {"prompt_tokens", answer.prompt_tokens},
                    {"cached_tokens", answer.cached_tokens},
                    {"token_ids", json::value_from(answer.token_ids)},
                    {"text", answer.text},
                    {"finish_reason", engine::to_string(answer.finish)}};
  if (!answer.logprobs.empty()) {
    auto finite = [](float logprob) { return std::max(logprob, -9999.0f); };  // JSON has no infinity
    json::array tokens;
    for (const TokenLogprobs& token : answer.logprobs) {
      json::array top;
      for (const ops::TokenLogprob& entry : token.top)
        top.push_back({{"id", entry.token}, {"logprob", finite(entry.logprob)}});
      tokens.push_back({{"logprob", finite(token.logprob)}, {"top", std::move(top)}});
    }
    line["logprobs"] = std::move(tokens);
  }
  return json::serialize(line);
}

Result<std::vector<TokenId>> encode_prompt(const Runtime& runtime, std::string_view prompt, std::string_view system,
                                           bool raw) {
  if (raw || runtime.chat_template == nullptr) return runtime.tokenizer->encode_prompt(prompt);
  std::vector<text::Message> messages;
  if (!system.empty()) messages.push_back({"system", std::string(system)});
  messages.push_back({"user", std::string(prompt)});
  return runtime.chat_template->encode(*runtime.tokenizer, messages, {});
}

}  // namespace headwater::apps
