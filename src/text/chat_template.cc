#include "text/chat_template.h"

#include "text/jinja/evaluator.h"
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

Result<jinja::Value> message_list(std::span<const Message> messages, std::string_view behind_last,
                                  jinja::Budget& budget) {
  std::vector<jinja::Value> items;
  for (const Message& message : messages) {
    const std::string content = message.content + std::string(&message == &messages.back() ? behind_last : "");
    std::vector<std::pair<jinja::Text, jinja::Value>> entries;
    for (const auto& [name, text] : {std::pair{"role", &message.role}, std::pair{"content", &content}}) {
      HEADWATER_ASSIGN_OR_RETURN(jinja::Value value,
                                 jinja::make_text({}, budget, jinja::Text(valid_utf8(*text), false)));
      entries.emplace_back(jinja::Text(name, true), std::move(value));
    }
    HEADWATER_ASSIGN_OR_RETURN(jinja::Value dict, jinja::make_dict({}, budget, std::move(entries)));
    items.push_back(std::move(dict));
  }
  return jinja::make_list({}, budget, std::move(items));
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

}  // namespace

struct ChatTemplate::Impl {
  jinja::Body body;
  std::string bos;
  std::string eos;
  TemplateLimits limits;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string bos, std::string eos,
                                         TemplateLimits limits) {
  if (source.size() > limits.source_bytes) {
    return error(ErrorCode::kExhausted, "the chat template has {} bytes; at most {} are read", source.size(),
                 limits.source_bytes);
  }
  if (!is_valid_utf8(source)) return error(ErrorCode::kInvalidArgument, "the chat template is not valid UTF-8");
  HEADWATER_ASSIGN_OR_RETURN(jinja::Body body, jinja::parse_template(source, limits.depth));
  return ChatTemplate(std::make_unique<Impl>(Impl{std::move(body), valid_utf8(bos), valid_utf8(eos), limits}));
}

Result<ChatTemplate> ChatTemplate::create(const model::GgufFile& file, const Tokenizer& tokenizer) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view source, file.string_at("tokenizer.chat_template"));
  return parse(source, std::string(tokenizer.bytes_of(tokenizer.bos())),
               std::string(tokenizer.bytes_of(tokenizer.eos())));
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::vector<TemplateSegment>> ChatTemplate::render(std::span<const Message> messages,
                                                          const RenderOptions& options) const {
  using jinja::Value;
  jinja::Budget budget(impl_->limits.steps, impl_->limits.memory_bytes);
  jinja::Evaluator evaluator(budget, impl_->limits.output_bytes);
  if (options.continue_final_message && (options.add_generation_prompt || messages.empty())) {
    return error(ErrorCode::kInvalidArgument,
                 "continue_final_message goes on with the last message: it needs one, and add_generation_prompt false");
  }
  HEADWATER_ASSIGN_OR_RETURN(
      Value list, message_list(messages, options.continue_final_message ? kContinueMark : std::string_view(), budget));
  for (const auto& [name, value] : options.variables) evaluator.define(name, Value::of_bool(value));
  evaluator.define("messages", std::move(list));
  evaluator.define("add_generation_prompt", Value::of_bool(options.add_generation_prompt));
  evaluator.define("bos_token", Value::of_text(jinja::Text(impl_->bos, true)));
  evaluator.define("eos_token", Value::of_text(jinja::Text(impl_->eos, true)));
  evaluator.define("tools", Value::none());
  evaluator.define("documents", Value::none());
  HEADWATER_RETURN_IF_ERROR(evaluator.run(impl_->body));

  std::vector<TemplateSegment> segments;
  size_t begin = 0;
  for (const jinja::Text::Run& run : evaluator.output().runs()) {
    segments.push_back({evaluator.output().bytes().substr(begin, run.end - begin), run.owned});
    begin = run.end;
  }
  if (options.continue_final_message)
    HEADWATER_RETURN_IF_ERROR(end_at_mark(valid_utf8(messages.back().content), segments));
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
  tokenizer.encode(text_parts(segments), ids);
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
