#include "server/openai/prompt.h"

#include <algorithm>

namespace headwater::server::openai {
namespace {

namespace json = boost::json;

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

ApiError empty_prompt(std::string_view field) {
  return {.message = fmt::format("\"{}\" is empty; expected at least one token", field), .param = std::string(field)};
}

// Refuses what cannot fit before time is spent on it.
std::optional<ApiError> check_text_length(std::string_view field, size_t bytes, const ServedModel& served) {
  const size_t tokens_min = bytes / served.tokenizer->token_bytes_max();
  if (tokens_min <= served.context_max) return std::nullopt;
  return prompt_too_long(field, tokens_min, false, served);
}

std::optional<ApiError> read_prompt(const json::value& value, bool special, const ServedModel& served,
                                    std::vector<TokenId>& ids, std::string* text) {
  if (value.is_string()) {
    if (auto failed = check_text_length("prompt", value.as_string().size(), served)) return failed;
    ids = encode_text(view(value.as_string()), special, served);
    if (text != nullptr) *text = view(value.as_string());
  } else {
    const size_t count_max = size_t{served.context_max} + 1;  // one more shows that it is too long
    if (value.is_array() && value.as_array().size() > count_max) {
      return prompt_too_long("prompt", value.as_array().size(), true, served);
    }
    if (auto failed = read_token_ids("prompt", value, served, count_max, ids)) return failed;
    if (text != nullptr) *text = served.tokenizer->decode(ids, false);
  }
  return ids.empty() ? std::optional(empty_prompt("prompt")) : std::nullopt;
}

// The text parts of a list are lines of one text.
std::optional<ApiError> read_parts(const json::value& content, std::string& out) {
  constexpr std::string_view kField = "messages.content";
  for (const json::value& part : content.as_array()) {
    const json::object* object = part.if_object();
    const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
    if (type == nullptr || !type->is_string()) return wrong_value(kField, part, "parts {type: \"text\", text}");
    if (type->as_string() != "text") {
      return wrong_value("messages.content.type", *type, "\"text\"; the model reads nothing else");
    }
    const json::value* text = object->if_contains("text");
    if (text == nullptr || !text->is_string()) return wrong_value(kField, part, "a text part with the string text");
    if (&part != &content.as_array().front()) out += '\n';
    out += view(text->as_string());
  }
  return std::nullopt;
}

std::optional<ApiError> read_message(const json::value& value, text::Message& out) {
  const json::object* object = value.if_object();
  const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
  const json::value* content = object == nullptr ? nullptr : object->if_contains("content");
  if (role == nullptr || content == nullptr) return wrong_value("messages", value, "objects with role and content");
  if (!role->is_string() || role->as_string().empty()) return wrong_value("messages.role", *role, "a string");
  for (const char* field : {"tool_calls", "function_call"}) {
    const json::value* calls = object->if_contains(field);
    if (calls == nullptr || calls->is_null() || (calls->is_array() && calls->as_array().empty())) continue;
    return wrong_value(std::string("messages.") + field, *calls, "nothing: tool calls are not supported yet");
  }
  out.role = view(role->as_string());
  if (content->is_array()) return read_parts(*content, out.content);
  if (content->is_string()) {
    out.content = view(content->as_string());
  } else if (!content->is_null()) {
    return wrong_value("messages.content", *content, "a string, null, or a list of text parts");
  }
  return std::nullopt;
}

std::optional<ApiError> read_template_options(const Body& body, text::RenderOptions& options) {
  options.continue_final_message = body.boolean("continue_final_message", false);
  options.add_generation_prompt = body.boolean("add_generation_prompt", !options.continue_final_message);
  if (options.add_generation_prompt && options.continue_final_message) {
    return ApiError{.message =
                        "\"add_generation_prompt\" and \"continue_final_message\" are both true; an answer "
                        "either begins a message or continues one",
                    .param = "continue_final_message"};
  }
  const json::value* variables = body.find("chat_template_kwargs");
  if (variables == nullptr) return std::nullopt;
  if (!variables->is_object()) return body.wrong("chat_template_kwargs");
  for (const auto& [name, value] : variables->as_object()) {
    const std::string_view key(name.data(), name.size());
    const bool known = std::ranges::find(kTemplateVariableNames, key) != std::end(kTemplateVariableNames);
    if (!known || !(value.is_bool() || value.is_null())) {
      return wrong_value("chat_template_kwargs." + cut_text(key), value,
                         allowed_values(*find_field("chat_template_kwargs", kInChat)));
    }
    if (value.is_bool()) options.variables.emplace_back(key, value.as_bool());
  }
  return std::nullopt;
}

bool ends_with_think(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && text.substr(0, end + 1).ends_with("<think>");
}

}  // namespace

ApiError prompt_too_long(std::string_view field, size_t prompt_tokens, bool exact, const ServedModel& served) {
  return {.message = fmt::format("This model's maximum context length is {} tokens, but \"{}\" has {}{} tokens, which "
                                 "leaves no room for an answer; shorten it",
                                 served.context_max, field, exact ? "" : "at least ", prompt_tokens),
          .param = std::string(field),
          .code = "context_length_exceeded"};
}

std::optional<ApiError> read_token_ids(std::string_view field, const json::value& value, const ServedModel& served,
                                       size_t count_max, std::vector<TokenId>& out) {
  if (!value.is_array()) return wrong_value(field, value, "a list of token ids");
  if (value.as_array().size() > count_max) {
    return ApiError{.message = fmt::format("\"{}\" has {} token ids; expected at most {}", field,
                                           value.as_array().size(), count_max),
                    .param = std::string(field)};
  }
  out.reserve(out.size() + value.as_array().size());
  for (const json::value& entry : value.as_array()) {
    const auto id = integer_within(entry, 0, static_cast<double>(served.vocabulary) - 1);
    if (!id) {
      return ApiError{.message = fmt::format("\"{}\" holds {}; expected token ids from 0 to {}", field, quoted(entry),
                                             served.vocabulary - 1),
                      .param = std::string(field)};
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return std::nullopt;
}

std::vector<TokenId> encode_text(std::string_view text, bool special, const ServedModel& served) {
  return special ? served.tokenizer->encode_prompt(text) : served.tokenizer->encode(text, text::SpecialTokens::kAsText);
}

std::optional<ApiError> read_prompts(const Body& body, const ServedModel& served,
                                     std::vector<std::vector<TokenId>>& prompts, std::vector<std::string>* texts) {
  const json::value& value = *body.find("prompt");
  if (!value.is_string() && !value.is_array()) return body.wrong("prompt");
  const bool several = value.is_array() && !value.as_array().empty() && !value.as_array().front().is_number();
  const std::span<const json::value> list =
      several ? std::span<const json::value>(value.as_array()) : std::span<const json::value>(&value, 1);
  const auto n = static_cast<size_t>(body.integer("n", 1));
  if (list.size() * n > kChoicesMax) {
    return ApiError{.message = fmt::format("\"prompt\" has {} prompts and \"n\" is {}; expected at most {} choices in "
                                           "all: send several requests",
                                           list.size(), n, kChoicesMax),
                    .param = "prompt"};
  }
  const bool special = body.boolean("add_special_tokens", true);
  for (const json::value& entry : list) {
    if (several && entry.kind() != list.front().kind()) return body.wrong("prompt");
    std::string* text = texts == nullptr ? nullptr : &texts->emplace_back();
    if (auto failed = read_prompt(entry, special, served, prompts.emplace_back(), text)) return failed;
  }
  return std::nullopt;
}

std::optional<ApiError> read_messages(const Body& body, const ServedModel& served, std::vector<TokenId>& ids,
                                      bool& in_reasoning) {
  const json::value& value = *body.find("messages");
  if (!value.is_array() || value.as_array().empty()) return body.wrong("messages");
  if (served.chat_template == nullptr) {
    return ApiError{.message = "\"messages\" need a chat template, which this model has not; use /v1/completions",
                    .param = "messages"};
  }
  text::RenderOptions options;
  if (auto failed = read_template_options(body, options)) return failed;
  std::vector<text::Message> messages;
  for (const json::value& entry : value.as_array()) {
    if (auto failed = read_message(entry, messages.emplace_back())) return failed;
  }
  const auto segments = served.chat_template->render(messages, options);
  if (!segments) {
    return ApiError{.message = "the chat template refuses the messages: " + segments.status().message(),
                    .param = "messages"};
  }
  std::string text;
  for (const text::TemplateSegment& segment : *segments) text += segment.text;
  if (auto failed = check_text_length("messages", text.size(), served)) return failed;
  served.tokenizer->encode(text::text_parts(*segments), ids);
  in_reasoning = served.reasoning && ends_with_think(text);
  return ids.empty() ? std::optional(empty_prompt("messages")) : std::nullopt;
}

}  // namespace headwater::server::openai
