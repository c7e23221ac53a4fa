#include "apps/prompt_json.h"

#include <boost/json.hpp>
#include <charconv>
#include <cmath>

namespace headwater::apps {
namespace {

namespace json = boost::json;

Status wrong(const char* field, const json::value& value, const char* expected) {
  return error(ErrorCode::kInvalidArgument, "\"{}\" is {}; expected {}", field, json::serialize(value).substr(0, 80),
               expected);
}

// Reads optional fields of one line; the first wrong one is kept as the status.
class Fields {
 public:
  explicit Fields(const json::object& object) : object_(object) {}

  void number(const char* field, double low, double high, float& out, const char* expected) {
    const json::value* value = find(field);
    if (value == nullptr) return;
    if (!value->is_number()) return fail(wrong(field, *value, expected));
    const double number = value->to_number<double>();
    if (!(number >= low && number <= high)) return fail(wrong(field, *value, expected));
    out = static_cast<float>(number);
  }
  template <typename T>
  void integer(const char* field, int64_t low, int64_t high, T& out, const char* expected) {
    const json::value* value = find(field);
    if (value == nullptr) return;
    boost::system::error_code failed;
    const auto number = value->to_number<int64_t>(failed);
    if (failed || number < low || number > high) return fail(wrong(field, *value, expected));
    out = static_cast<T>(number);
  }
  void boolean(const char* field, bool& out) {
    const json::value* value = find(field);
    if (value == nullptr) return;
    if (!value->is_bool()) return fail(wrong(field, *value, "true or false"));
    out = value->as_bool();
  }
  void string(const char* field, std::string& out) {
    const json::value* value = find(field);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(wrong(field, *value, "a string"));
    out = std::string(value->as_string());
  }
  const json::value* find(const char* field) const {  // null counts as absent
    const json::value* value = object_.if_contains(field);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  void fail(Status status) {
    if (status_) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  const json::object& object_;
  Status status_;
};

void read_stops(Fields& fields, std::vector<std::string>& stops) {
  const json::value* value = fields.find("stop");
  if (value == nullptr) return;
  constexpr const char* kExpected = "a string or up to 16 strings, none empty";
  const json::array single{*value};
  if (!value->is_string() && !value->is_array()) return fields.fail(wrong("stop", *value, kExpected));
  const json::array& list = value->is_array() ? value->as_array() : single;
  for (const json::value& stop : list) {
    if (!stop.is_string() || stop.as_string().empty() || list.size() > 16)
      return fields.fail(wrong("stop", *value, kExpected));
    stops.emplace_back(stop.as_string());
  }
}

Result<std::vector<TokenId>> read_ids(const char* field, const json::value& value, uint32_t vocabulary) {
  std::vector<TokenId> ids;
  if (!value.is_array()) return wrong(field, value, "an array of token ids");
  for (const json::value& entry : value.as_array()) {
    boost::system::error_code failed;
    const auto id = entry.to_number<int64_t>(failed);
    if (failed || id < 0 || id >= vocabulary) {
      return error(ErrorCode::kInvalidArgument, "\"{}\" holds {}; expected token ids from 0 to {}", field,
                   json::serialize(entry).substr(0, 40), vocabulary - 1);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

void read_bias(Fields& fields, uint32_t vocabulary, std::vector<ops::LogitBias>& out) {
  const json::value* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.fail(wrong("logit_bias", *value, "an object of token id to bias"));
  for (const auto& [key, bias] : value->as_object()) {
    const std::string text(key);
    int64_t id = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (failed != std::errc() || end != text.data() + text.size() || id < 0 || id >= int64_t{vocabulary} ||
        !bias.is_number() || std::abs(bias.to_number<double>()) > 100) {
      return fields.fail(error(ErrorCode::kInvalidArgument,
                               "\"logit_bias\" has {}: {}; expected ids from 0 to {} and biases from -100 to 100", text,
                               json::serialize(bias).substr(0, 40), vocabulary - 1));
    }
    out.push_back({static_cast<TokenId>(id), static_cast<float>(bias.to_number<double>())});
  }
}

Status read_sampling(Fields& fields, uint32_t vocabulary, PromptRequest& prompt) {
  engine::SamplingParams& s = prompt.request.sampling;
  fields.integer("max_tokens", 1, 1 << 24, s.tokens_max, "1 to 16777216 tokens");
  fields.integer("min_tokens", 0, 1 << 24, s.tokens_min, "0 to 16777216 tokens");
  fields.number("temperature", 0, 2, s.temperature, "0 to 2");
  fields.integer("top_k", -1, 1 << 30, s.top_k, "a number of tokens; 0 or -1 for all");
  if (s.top_k == static_cast<uint32_t>(-1)) s.top_k = 0;
  fields.number("top_p", 1e-9, 1, s.top_p, "above 0, at most 1");
  fields.number("min_p", 0, 1, s.min_p, "0 to 1");
  fields.number("presence_penalty", -2, 2, s.presence_penalty, "-2 to 2");
  fields.number("frequency_penalty", -2, 2, s.frequency_penalty, "-2 to 2");
  fields.number("repetition_penalty", 0.01, 10, s.repetition_penalty, "0.01 to 10");
  fields.integer("seed", INT64_MIN, INT64_MAX, s.seed, "an integer of 64 bits");
  fields.boolean("ignore_eos", prompt.ignore_eos);
  fields.boolean("logprobs", s.want_logprobs);
  fields.integer("top_logprobs", 0, ops::kLogprobsMax, s.top_logprobs, "0 to 20");
  fields.integer("n", 1, 128, prompt.request.n, "1 to 128 choices");
  fields.integer("priority", INT32_MIN, INT32_MAX, prompt.request.priority, "an integer of 32 bits");
  fields.string("cache_salt", prompt.request.cache_salt);
  read_stops(fields, prompt.stops);
  read_bias(fields, vocabulary, s.logit_bias);
  if (const json::value* ids = fields.find("stop_token_ids")) {
    auto parsed = read_ids("stop_token_ids", *ids, vocabulary);
    if (!parsed) return parsed.status();
    s.stop_ids.insert(s.stop_ids.end(), parsed->begin(), parsed->end());
  }
  if (s.top_logprobs > 0) s.want_logprobs = true;
  return fields.status();
}

Result<std::vector<TokenId>> encode_messages(const Runtime& runtime, const json::value& value) {
  if (!value.is_array() || value.as_array().empty()) return wrong("messages", value, "an array of {role, content}");
  if (runtime.chat_template == nullptr) {
    return error(ErrorCode::kUnsupported,
                 "\"messages\" needs a chat template, which this model has not; use \"prompt\"");
  }
  std::vector<text::Message> messages;
  for (const json::value& entry : value.as_array()) {
    const json::object* object = entry.if_object();
    const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
    const json::value* content = object == nullptr ? nullptr : object->if_contains("content");
    if (role == nullptr || content == nullptr || !role->is_string() || !content->is_string()) {
      return wrong("messages", entry, "an object with the strings role and content");
    }
    messages.push_back({std::string(role->as_string()), std::string(content->as_string())});
  }
  return runtime.chat_template->encode(*runtime.tokenizer, messages, {});
}

Result<std::vector<TokenId>> read_prompt(const Fields& fields, const Runtime& runtime) {
  const json::value* prompt = fields.find("prompt");
  const json::value* messages = fields.find("messages");
  if ((prompt == nullptr) == (messages == nullptr)) {
    return error(ErrorCode::kInvalidArgument, "a line needs exactly one of \"prompt\" and \"messages\"");
  }
  if (messages != nullptr) return encode_messages(runtime, *messages);
  if (prompt->is_string()) return runtime.tokenizer->encode_prompt(prompt->as_string());
  return read_ids("prompt", *prompt, runtime.model->shape().vocabulary);
}

}  // namespace

Result<PromptRequest> parse_prompt_line(std::string_view line, size_t line_number,
                                        const engine::SamplingParams& defaults, const Runtime& runtime) {
  boost::system::error_code failed;
  const json::value value = json::parse(line, failed);
  if (failed || !value.is_object()) {
    return error(ErrorCode::kInvalidArgument, "line {}: not a JSON object: {}", line_number,
                 failed ? failed.message() : std::string(line.substr(0, 60)));
  }
  Fields fields(value.as_object());
  PromptRequest prompt;
  prompt.request.sampling = defaults;
  prompt.id = std::to_string(line_number);
  if (const json::value* id = fields.find("id")) {
    prompt.id = id->is_string() ? std::string(id->as_string()) : json::serialize(*id);
  }
  Status status = read_sampling(fields, runtime.model->shape().vocabulary, prompt);
  if (status) {
    auto ids = read_prompt(fields, runtime);
    if (ids && ids->empty())
      ids = error(ErrorCode::kInvalidArgument, "the prompt is empty; it needs at least one token");
    if (ids) {
      prompt.request.prompt = std::move(*ids);
      return prompt;
    }
    status = ids.status();
  }
  return error(status.code(), "line {}: {}", line_number, status.message());
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
