// Templates of a model's folder.
#include "text/chat_template.h"

namespace headwater::text {
namespace {

std::string_view view(const boost::json::string& text) {
  return {text.data(), text.size()};
}

// "bos_token": "<s>", or {"content": "<s>", ...}, or null.
std::string spelling(const boost::json::object& config, const char* name) {
  const boost::json::value* token = config.if_contains(name);
  if (token != nullptr && token->is_object()) token = token->get_object().if_contains("content");
  return token != nullptr && token->is_string() ? std::string(view(token->get_string())) : std::string();
}

// The text of the template of that name; "" where there is none.
std::string_view named(const boost::json::value* templates, std::string_view name) {
  if (templates == nullptr) return {};
  if (templates->is_string()) return name == "default" ? view(templates->get_string()) : std::string_view();
  if (!templates->is_array()) return {};
  for (const boost::json::value& entry : templates->get_array()) {
    const boost::json::object* fields = entry.if_object();
    const boost::json::value* known = fields == nullptr ? nullptr : fields->if_contains("name");
    const boost::json::value* text = fields == nullptr ? nullptr : fields->if_contains("template");
    if (known == nullptr || text == nullptr || !known->is_string() || !text->is_string()) continue;
    if (view(known->get_string()) == name) return view(text->get_string());
  }
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::from_texts(std::string_view chat_template_jinja,
                                              std::string_view tokenizer_config_json) {
  boost::json::object config;
  if (!tokenizer_config_json.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(json::Value parsed, json::parse(tokenizer_config_json, "tokenizer_config.json"));
    if (!parsed.is_object()) return error(ErrorCode::kCorrupt, "tokenizer_config.json holds no object");
    config = std::move(parsed.get_object());
  }
  const boost::json::value* templates = chat_template_jinja.empty() ? config.if_contains("chat_template") : nullptr;
  const std::string_view source = chat_template_jinja.empty() ? named(templates, "default") : chat_template_jinja;
  if (source.empty()) {
    return error(ErrorCode::kNotFound, "neither chat_template.jinja nor tokenizer_config.json has a chat template");
  }
  HEADWATER_ASSIGN_OR_RETURN(ChatTemplate made,
                             parse(source, spelling(config, "bos_token"), spelling(config, "eos_token")));
  const std::string_view tool_use = named(templates, "tool_use");
  if (!tool_use.empty()) HEADWATER_RETURN_IF_ERROR(made.set_tool_use(tool_use));
  return made;
}

}  // namespace headwater::text
