#include "server/openai/messages.h"

#include <algorithm>

#include "server/openai/prompt.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;
using Failure = std::optional<ApiError>;

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

const json::object* object_at(const json::object& fields, const char* name) {
  const json::value* value = fields.if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

const json::string* string_at(const json::object& fields, const char* name) {
  const json::value* value = fields.if_contains(name);
  return value == nullptr ? nullptr : value->if_string();
}

// Whether a field is absent, or of one of these kinds.
bool is_none_or(const json::object& fields, const char* name, std::initializer_list<json::kind> kinds) {
  const json::value* value = fields.if_contains(name);
  return value == nullptr || std::ranges::find(kinds, value->kind()) != kinds.end();
}

Failure check_parts(const json::array& parts) {
  constexpr std::string_view kField = "messages.content";
  for (const json::value& part : parts) {
    const json::object* fields = part.if_object();
    const json::string* type = fields == nullptr ? nullptr : string_at(*fields, "type");
    if (type == nullptr) return wrong_value(kField, part, "parts {type: \"text\", text}");
    if (*type != "text") {
      return wrong_value("messages.content.type", *type, "\"text\"; the model reads nothing else");
    }
    if (string_at(*fields, "text") == nullptr) return wrong_value(kField, part, "a text part with the string text");
  }
  return std::nullopt;
}

Failure check_calls(const json::value& calls) {
  constexpr std::string_view kField = "messages.tool_calls";
  if (!calls.is_array()) return wrong_value(kField, calls, "a list of calls");
  for (const json::value& call : calls.as_array()) {
    const json::object* fields = call.if_object();
    const json::object* function = fields == nullptr ? nullptr : object_at(*fields, "function");
    const bool is_call = function != nullptr && string_at(*function, "name") != nullptr &&
                         is_none_or(*function, "arguments", {json::kind::string, json::kind::object}) &&
                         is_none_or(*fields, "id", {json::kind::string}) &&
                         (!fields->contains("type") || fields->at("type") == "function");
    if (!is_call) return wrong_value(kField, call, "calls {id, type: \"function\", function: {name, arguments}}");
  }
  return std::nullopt;
}

// A message as it is, without fields that ask for nothing.
Failure read_message(const json::value& value, json::object& out) {
  const json::object* fields = value.if_object();
  const json::value* role = fields == nullptr ? nullptr : fields->if_contains("role");
  if (role == nullptr) return wrong_value("messages", value, "objects with role and content");
  if (!role->is_string() || role->as_string().empty()) return wrong_value("messages.role", *role, "a string");
  for (const auto& [name, held] : *fields) {
    const bool is_nothing = held.is_null() || (name == "tool_calls" && held.is_array() && held.as_array().empty());
    if (!is_nothing || name == "content") out.emplace(name, held);
  }
  if (const json::value* call = out.if_contains("function_call")) {
    return wrong_value("messages.function_call", *call, "nothing; calls are given as tool_calls");
  }
  if (!is_none_or(out, "tool_call_id", {json::kind::string})) {
    return wrong_value("messages.tool_call_id", out.at("tool_call_id"), "a string");
  }
  const json::value* calls = out.if_contains("tool_calls");
  if (calls != nullptr) {
    if (auto failed = check_calls(*calls)) return failed;
    out.emplace("content", nullptr);  // unless there is one
  }
  json::value* content = out.if_contains("content");
  if (content == nullptr) return wrong_value("messages", value, "objects with role and content");
  if (content->is_array()) return check_parts(content->as_array());
  if (content->is_null() && calls == nullptr) *content = "";
  if (content->is_string() || content->is_null()) return std::nullopt;
  return wrong_value("messages.content", *content, "a string, null, or a list of text parts");
}

void join_parts(json::value& content) {
  std::string text;
  for (const json::value& part : content.as_array()) {
    if (&part != &content.as_array().front()) text += '\n';
    text += view(part.at("text").as_string());
  }
  content = text;
}

// The API has arguments as JSON text, most templates want the object.
void parse_arguments(json::array& calls) {
  for (json::value& call : calls) {
    json::value* arguments = call.as_object().at("function").as_object().if_contains("arguments");
    json::value parsed;
    if (arguments == nullptr || !arguments->is_string()) continue;
    if (!parse_json(view(arguments->as_string()), parsed) && parsed.is_object()) *arguments = std::move(parsed);
  }
}

// Into the forms that the template reads.
void adapt(const text::ChatTemplate& chat_template, std::vector<text::Message>& messages) {
  const auto has = [&](const char* name) {
    return std::ranges::any_of(messages, [&](const text::Message& message) {
      const json::value* value = message.fields.if_contains(name);
      return value != nullptr && value->is_array();
    });
  };
  const bool joins = has("content") && !chat_template.reads_parts();
  const bool parses = has("tool_calls") && chat_template.reads_argument_objects();
  for (text::Message& message : messages) {
    json::value* content = message.fields.if_contains("content");
    if (joins && content != nullptr && content->is_array()) join_parts(*content);
    json::value* calls = message.fields.if_contains("tool_calls");
    if (parses && calls != nullptr) parse_arguments(calls->as_array());
  }
}

Failure read_tools(const Body& body, text::RenderOptions& options) {
  const json::value* tools = body.find("tools");
  if (tools == nullptr) return std::nullopt;
  if (!tools->is_array()) return body.wrong("tools");
  for (const json::value& tool : tools->as_array()) {
    const json::object* fields = tool.if_object();
    const json::object* function = fields == nullptr ? nullptr : object_at(*fields, "function");
    const json::string* type = fields == nullptr ? nullptr : string_at(*fields, "type");
    const bool is_tool = function != nullptr && string_at(*function, "name") != nullptr && type != nullptr &&
                         *type == "function" &&
                         is_none_or(*function, "description", {json::kind::string, json::kind::null}) &&
                         is_none_or(*function, "parameters", {json::kind::object, json::kind::null});
    if (!is_tool) {
      return wrong_value("tools", tool, "tools {type: \"function\", function: {name, description, parameters}}");
    }
  }
  const json::value* choice = body.find("tool_choice");
  const bool is_hidden = choice != nullptr && *choice == "none";
  if (!is_hidden && !tools->as_array().empty()) options.tools = *tools;
  return std::nullopt;
}

Failure read_documents(const Body& body, text::RenderOptions& options) {
  const json::value* documents = body.find("documents");
  if (documents == nullptr) return std::nullopt;
  const auto is_object = [](const json::value& document) { return document.is_object(); };
  if (!documents->is_array() || !std::ranges::all_of(documents->as_array(), is_object)) return body.wrong("documents");
  if (!documents->as_array().empty()) options.documents = *documents;
  return std::nullopt;
}

Failure read_variables(const Body& body, text::RenderOptions& options) {
  const json::value* variables = body.find("chat_template_kwargs");
  if (variables == nullptr) return std::nullopt;
  if (!variables->is_object()) return body.wrong("chat_template_kwargs");
  for (const auto& [name, value] : variables->as_object()) {
    const std::string_view key(name.data(), name.size());
    if (std::ranges::find(kTemplateOwnNames, key) != std::end(kTemplateOwnNames)) {
      return wrong_value("chat_template_kwargs." + std::string(key), value,
                         allowed_values(*find_field("chat_template_kwargs", kInChat)));
    }
    if (!value.is_null()) options.variables.emplace(name, value);
  }
  return std::nullopt;
}

Failure read_template_options(const Body& body, text::RenderOptions& options) {
  options.continue_final_message = body.boolean("continue_final_message", false);
  options.add_generation_prompt = body.boolean("add_generation_prompt", !options.continue_final_message);
  if (options.add_generation_prompt && options.continue_final_message) {
    return ApiError{.message =
                        "\"add_generation_prompt\" and \"continue_final_message\" are both true; an answer "
                        "either begins a message or continues one",
                    .param = "continue_final_message"};
  }
  if (auto failed = read_tools(body, options)) return failed;
  if (auto failed = read_documents(body, options)) return failed;
  return read_variables(body, options);
}

bool ends_with_think(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && text.substr(0, end + 1).ends_with("<think>");
}

}  // namespace

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
    json::object fields;
    if (auto failed = read_message(entry, fields)) return failed;
    messages.emplace_back(std::move(fields));
  }
  adapt(*served.chat_template, messages);
  const auto segments = served.chat_template->render(messages, options);
  if (!segments) {
    return ApiError{.message = "the chat template refuses the messages: " + segments.status().message(),
                    .param = "messages"};
  }
  std::string text;
  for (const text::TemplateSegment& segment : *segments) text += segment.text;
  if (auto failed = check_text_length("messages", text.size(), served)) return failed;
  if (const Status encoded = served.tokenizer->encode(text::text_parts(*segments), ids); !encoded) {
    return ApiError{.message = encoded.message(), .param = "messages"};
  }
  in_reasoning = served.reasoning && ends_with_think(text);
  return ids.empty() ? std::optional(empty_prompt("messages")) : std::nullopt;
}

}  // namespace headwater::server::openai
