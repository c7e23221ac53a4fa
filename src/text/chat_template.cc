#include "text/chat_template.h"

#include "text/jinja/evaluator.h"
#include "text/jinja/json_value.h"
#include "text/jinja/parser.h"
#include "text/jinja/text.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

std::string valid_utf8(std::string_view text) {
  std::string valid;
  append_valid_utf8(text, valid);
  return valid;
}

// Stands behind the content of a message to be continued. Its space is gone where the template trims the content.
constexpr std::string_view kContinueMark = "CONTINUE_FROM_HERE ";

// Stands behind the content of the last message.
Result<json::Value> message_list(std::span<const Message> messages, std::string_view behind_last) {
  boost::json::array list;
  for (const Message& message : messages) list.emplace_back(message.fields);
  if (behind_last.empty()) return json::Value(std::move(list));
  boost::json::value* content = list.back().as_object().if_contains("content");
  if (content == nullptr || !content->is_string()) {
    return error(ErrorCode::kInvalidArgument,
                 "continue_final_message is set, but the content of the final message is no text");
  }
  content->as_string().append(boost::json::string_view(behind_last.data(), behind_last.size()));
  return json::Value(std::move(list));
}

std::string joined(std::span<const TemplateSegment> segments) {
  std::string text;
  for (const TemplateSegment& segment : segments) text += segment.text;
  return text;
}

std::string_view stripped(std::string_view text) {
  const jinja::Range range = jinja::strip(text, nullptr, true, true);
  return text.substr(range.begin, range.end - range.begin);
}

// Cuts at the last mark, which only text of messages can hold. `content`: what stands in front of it.
Status end_at_mark(std::string_view content, std::vector<TemplateSegment>& segments) {
  const std::string_view word = kContinueMark.substr(0, kContinueMark.size() - 1);
  size_t at = std::string::npos;
  while (!segments.empty()) {
    if (!segments.back().template_owned) at = segments.back().text.rfind(word);
    if (at != std::string::npos) break;
    segments.pop_back();
  }
  const bool is_trimmed =
      !segments.empty() && segments.back().text.compare(at, kContinueMark.size(), kContinueMark) != 0;
  if (!segments.empty()) segments.back().text.resize(at);
  while (is_trimmed && !segments.empty()) {
    std::string& text = segments.back().text;
    text.resize(jinja::strip(text, nullptr, false, true).end);
    if (!text.empty()) break;
    segments.pop_back();
  }
  if (at == std::string::npos || !stripped(joined(segments)).ends_with(stripped(content))) {
    return error(ErrorCode::kInvalidArgument,
                 "continue_final_message is set, but the chat template does not put the content of the final message "
                 "into the prompt as it is; send the conversation without it");
  }
  return {};
}

std::vector<TemplateSegment> segments_of(const jinja::Text& text) {
  std::vector<TemplateSegment> segments;
  size_t begin = 0;
  for (const jinja::Text::Run& run : text.runs()) {
    segments.push_back({text.bytes().substr(begin, run.end - begin), run.owned});
    begin = run.end;
  }
  return segments;
}

Result<jinja::Template> parse_source(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes) {
    return error(ErrorCode::kExhausted, "the chat template has {} bytes; at most {} are read: give a shorter one",
                 source.size(), limits.source_bytes);
  }
  if (!is_valid_utf8(source)) return error(ErrorCode::kInvalidArgument, "the chat template is not valid UTF-8");
  return jinja::parse_template(source, limits.words, limits.depth);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string text;  // of source
  jinja::Template source;
  std::optional<jinja::Template> with_tools;  // instead of source where there are tools
  std::string bos;
  std::string eos;
  TemplateLimits limits;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string bos, std::string eos,
                                         TemplateLimits limits) {
  HEADWATER_ASSIGN_OR_RETURN(jinja::Template parsed, parse_source(source, limits));
  return ChatTemplate(std::make_unique<Impl>(
      Impl{std::string(source), std::move(parsed), std::nullopt, valid_utf8(bos), valid_utf8(eos), limits}));
}

size_t ChatTemplate::source_bytes() const {
  return impl_->text.size();
}

bool ChatTemplate::mentions(std::string_view text) const {
  return impl_->text.find(text) != std::string::npos;
}

Status ChatTemplate::set_tool_use(std::string_view source) {
  HEADWATER_ASSIGN_OR_RETURN(impl_->with_tools, parse_source(source, impl_->limits));
  return {};
}

Result<ChatTemplate> ChatTemplate::create(const model::Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  if (checkpoint.gguf() != nullptr) return from_gguf(*checkpoint.gguf(), tokenizer);
  const model::SafetensorsFolder& folder = *checkpoint.folder();
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view source, folder.text_or_nothing("chat_template.jinja"));
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view config, folder.text_or_nothing("tokenizer_config.json"));
  return from_texts(source, config);
}

Result<ChatTemplate> ChatTemplate::from_gguf(const model::GgufFile& file, const Tokenizer& tokenizer) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view source, file.string_at("tokenizer.chat_template"));
  HEADWATER_ASSIGN_OR_RETURN(ChatTemplate made, parse(source, std::string(tokenizer.bytes_of(tokenizer.bos())),
                                                      std::string(tokenizer.bytes_of(tokenizer.eos()))));
  if (file.has("tokenizer.chat_template.tool_use")) {
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view tool_use, file.string_at("tokenizer.chat_template.tool_use"));
    HEADWATER_RETURN_IF_ERROR(made.set_tool_use(tool_use));
  }
  return made;
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::vector<TemplateSegment>> ChatTemplate::render(std::span<const Message> messages,
                                                          const RenderOptions& options) const {
  if (options.continue_final_message && (options.add_generation_prompt || messages.empty())) {
    return error(ErrorCode::kInvalidArgument,
                 "continue_final_message goes on with the last message: it needs one, and add_generation_prompt false");
  }
  HEADWATER_ASSIGN_OR_RETURN(
      const json::Value list,
      message_list(messages, options.continue_final_message ? kContinueMark : std::string_view()));
  const bool has_tools = options.tools.is_array() && !options.tools.get_array().empty();
  const jinja::Template& source = has_tools && impl_->with_tools ? *impl_->with_tools : impl_->source;
  jinja::Budget budget(impl_->limits.steps, impl_->limits.memory_bytes);
  const std::tm now = options.now.value_or(local_time());
  const jinja::Call call{{}, budget, now};
  jinja::Evaluator evaluator(source, budget, now, impl_->limits.output_bytes);
  const auto define = [&](std::string_view name, const json::Value& value) -> Status {
    const auto symbol = source.symbols.find(name);
    if (!symbol) return {};  // the template does not mention it
    HEADWATER_ASSIGN_OR_RETURN(jinja::Value converted, jinja::from_json(call, value));
    evaluator.define(*symbol, std::move(converted));
    return {};
  };
  for (const auto& [name, value] : options.variables) {
    HEADWATER_RETURN_IF_ERROR(define({name.data(), name.size()}, value));
  }
  HEADWATER_RETURN_IF_ERROR(define("messages", list));
  HEADWATER_RETURN_IF_ERROR(define("tools", options.tools));
  HEADWATER_RETURN_IF_ERROR(define("documents", options.documents));
  HEADWATER_RETURN_IF_ERROR(define("add_generation_prompt", options.add_generation_prompt));
  for (const auto& [name, text] : {std::pair("bos_token", &impl_->bos), std::pair("eos_token", &impl_->eos)}) {
    if (const auto symbol = source.symbols.find(name)) {
      evaluator.define(*symbol, jinja::Value::of_text(jinja::Text(*text, true)));
    }
  }
  HEADWATER_RETURN_IF_ERROR(evaluator.run());
  std::vector<TemplateSegment> segments = segments_of(evaluator.output());
  if (options.continue_final_message) {
    const auto& content = messages.back().fields.at("content").as_string();
    HEADWATER_RETURN_IF_ERROR(end_at_mark(valid_utf8({content.data(), content.size()}), segments));
  }
  return segments;
}

Result<std::string> ChatTemplate::render_text(std::span<const Message> messages, const RenderOptions& options) const {
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<TemplateSegment> segments, render(messages, options));
  return joined(segments);
}

Result<std::vector<TokenId>> ChatTemplate::encode(const Tokenizer& tokenizer, std::span<const Message> messages,
                                                  const RenderOptions& options) const {
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<TemplateSegment> segments, render(messages, options));
  std::vector<TokenId> ids;
  HEADWATER_RETURN_IF_ERROR(tokenizer.encode(text_parts(segments), ids));
  return ids;
}

std::vector<TextPart> text_parts(std::span<const TemplateSegment> segments) {
  std::vector<TextPart> parts;
  for (const TemplateSegment& segment : segments) {
    parts.push_back({segment.text, segment.template_owned ? SpecialTokens::kParse : SpecialTokens::kAsText});
  }
  return parts;
}

}  // namespace headwater::text
