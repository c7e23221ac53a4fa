// The model's own chat template (Jinja), run by a bounded interpreter: no host objects, no file or network access, and
// limits on steps, recursion depth, output bytes and memory. A construct that the interpreter does not know is a
// kUnsupported error with line and column when the template is parsed, never a silent difference.
//
// Only text that the template itself owns may become control tokens. render() therefore returns segments: template text
// (owned) and text that came from outside, be it of messages, tools, documents or variables (not owned). encode()
// tokenises them as one text in which only owned text may spell control tokens, so user text that spells "<|im_end|>"
// stays text, and no other token differs from what the whole text would give.
//
// Templates see messages, add_generation_prompt, bos_token, eos_token, tools and documents, and RenderOptions::variables,
// which cannot hide the former. What is supported of the language stands in docs/chat-templates.md.
//
// continue_final_message ends the prompt right behind the content of the last message, so that the model goes on with it.
// As in transformers, a mark behind the content shows where that is: a template that trims the content trims the prompt's
// end; one that leaves out the content or a part of it is an error, and so is add_generation_prompt.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/core.h"
#include "core/json.h"
#include "text/tokenizer.h"

namespace headwater::text {

// A message as templates see it: {"role": "user", "content": "Hello"}, and whatever else the sender says, in its order.
struct Message {
  Message(std::string_view role, std::string_view content)
      : fields({{"role", json_text(role)}, {"content", json_text(content)}}) {}
  explicit Message(boost::json::object values) : fields(std::move(values)) {}

  boost::json::object fields;

 private:
  static boost::json::string_view json_text(std::string_view text) { return {text.data(), text.size()}; }
};

struct RenderOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  json::Value tools;      // a list, or null for none
  json::Value documents;  // likewise
  boost::json::object variables;
  std::optional<std::tm> now;  // what strftime_now() tells; without it the local time
};

struct TemplateLimits {
  uint32_t source_bytes = 1u << 20;
  uint32_t words = 1u << 16;  // names, literals, signs and stretches of text
  uint32_t steps = 500'000;   // evaluated nodes; 64 bytes of scanned text count as one
  uint32_t depth = 64;        // nesting of expressions and blocks
  uint32_t output_bytes = 16u << 20;
  uint32_t memory_bytes = 32u << 20;  // of all values built, whether still alive or not; messages included
};

struct TemplateSegment {
  std::string text;
  bool template_owned;
};

// The segments as a tokenizer takes them; views into `segments`.
std::vector<TextPart> text_parts(std::span<const TemplateSegment> segments);

// The template of that name in the texts of a model's folder, "" where there is none: chat_template.jinja, which is
// "default", or else "chat_template" of tokenizer_config.json, a text or a list of {name, template}.
std::string_view template_named(std::string_view name, std::string_view chat_template_jinja,
                                const json::Value& tokenizer_config);

class ChatTemplate {
 public:
  // bos and eos: the spellings bound to bos_token and eos_token. trim_blocks and lstrip_blocks are on, as in
  // transformers.
  static Result<ChatTemplate> parse(std::string_view source, std::string bos, std::string eos,
                                    TemplateLimits limits = {});
  // The model's own: of a GGUF file tokenizer.chat_template, and tokenizer.chat_template.tool_use where there is one, which
  // then serves conversations with tools; of a folder as from_texts() says. kNotFound when it has none.
  static Result<ChatTemplate> create(const model::Checkpoint& checkpoint, const Tokenizer& tokenizer);
  // From the texts of a model's folder, "" where there is no such file: template_named() "default" and "tool_use";
  // bos_token and eos_token are tokenizer_config.json's. kNotFound when neither has a template.
  static Result<ChatTemplate> from_texts(std::string_view chat_template_jinja, std::string_view tokenizer_config_json);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<std::vector<TemplateSegment>> render(std::span<const Message> messages, const RenderOptions& options) const;
  Result<std::string> render_text(std::span<const Message> messages, const RenderOptions& options) const;
  Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::span<const Message> messages,
                                      const RenderOptions& options) const;

  size_t source_bytes() const;
  // Whether the template's source has this text; how it marks thinking can only be told by that.
  bool mentions(std::string_view text) const;
  // What the template makes of content that is a list of {type: "text", text}: the same as of a text, or something else.
  bool reads_parts() const;
  // Whether calls of tools are to have their arguments as objects, or as JSON text.
  bool reads_argument_objects() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  static Result<ChatTemplate> from_gguf(const model::GgufFile& file, const Tokenizer& tokenizer);
  Status set_tool_use(std::string_view source);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::text
