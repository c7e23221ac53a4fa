// Templates of a model's folder.
#include "text/chat_template.h"

namespace headwater::text {
namespace {

std::string_view view(const boost::json::string& text) {
  return {text.data(), text.size()};
}

// "bos_token": "<s>", or {"content": "<s>", ...}, or null.
std::string spelling(const json::Value& config, std::string_view name) {
  const json::Value* token = json::find(config, name);
  return std::string(token != nullptr && token->is_object() ? json::text_at(*token, "content")
                                                            : json::text_at(config, name));
}

}  // namespace

std::string_view template_named(std::string_view name, std::string_view chat_template_jinja,
                                const json::Value& tokenizer_config) {
  if (!chat_template_jinja.empty()) return name == "default" ? chat_template_jinja : std::string_view();
  const json::Value* templates = json::find(tokenizer_config, "chat_template");
  if (templates == nullptr) return {};
  if (templates->is_string()) return name == "default" ? view(templates->get_string()) : std::string_view();
  if (!templates->is_array()) return {};
  for (const json::Value& entry : templates->get_array()) {
    const std::string_view source = json::text_at(entry, "template");
    if (json::text_at(entry, "name") == name && !source.empty()) return source;
  }
  return {};
}

Result<ChatTemplate> ChatTemplate::from_texts(std::string_view chat_template_jinja,
                                              std::string_view tokenizer_config_json) {
  json::Value config = boost::json::object();
  if (!tokenizer_config_json.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(config, json::parse(tokenizer_config_json, "tokenizer_config.json"));
    if (!config.is_object()) return error(ErrorCode::kCorrupt, "tokenizer_config.json holds no object");
  }
  const std::string_view source = template_named("default", chat_template_jinja, config);
  if (source.empty()) {
    return error(ErrorCode::kNotFound, "neither chat_template.jinja nor tokenizer_config.json has a chat template");
  }
  HEADWATER_ASSIGN_OR_RETURN(ChatTemplate made,
                             parse(source, spelling(config, "bos_token"), spelling(config, "eos_token")));
  const std::string_view tool_use = template_named("tool_use", chat_template_jinja, config);
  if (!tool_use.empty()) HEADWATER_RETURN_IF_ERROR(made.set_tool_use(tool_use));
  return made;
}

}  // namespace headwater::text
