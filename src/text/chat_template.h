// The model's own chat template (Jinja), run by a bounded interpreter: no host objects, no file or network access, and
// limits on steps, recursion depth, output bytes and memory. A construct that the interpreter does not know is a
// kUnsupported error with line and column when the template is parsed, never a silent difference.
//
// Only text that the template itself owns may become control tokens. render() therefore returns segments: template text
// (owned) and text that came from messages, contents and role names alike (not owned). encode() tokenises them as one
// text in which only owned text may spell control tokens, so user text that spells "<|im_end|>" stays text, and no
// other token differs from what the whole text would give.
//
// Templates see messages (a list of {role, content}), add_generation_prompt, bos_token, eos_token, tools and documents,
// which are none, and RenderOptions::variables, which cannot hide the former. The language is in text/jinja.
//
// continue_final_message ends the prompt right behind the content of the last message, so that the model goes on with it.
// As in transformers, a mark behind the content shows where that is: a template that trims the content trims the prompt's
// end; one that leaves out the content or a part of it is an error, and so is add_generation_prompt.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/core.h"
#include "text/tokenizer.h"

namespace headwater::text {

struct Message {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

struct RenderOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::vector<std::pair<std::string, bool>> variables;
};

struct TemplateLimits {
  uint32_t source_bytes = 1u << 20;
  uint32_t steps = 1'000'000;  // evaluated nodes; 64 bytes of scanned text count as one
  uint32_t depth = 64;         // nesting of expressions and blocks
  uint32_t output_bytes = 16u << 20;
  uint32_t memory_bytes = 256u << 20;  // of all values built, whether still alive or not; messages included
};

struct TemplateSegment {
  std::string text;
  bool template_owned;
};

// The segments as a tokenizer takes them; views into `segments`.
std::vector<TextPart> text_parts(std::span<const TemplateSegment> segments);

class ChatTemplate {
 public:
  // bos and eos: the spellings bound to bos_token and eos_token. trim_blocks and lstrip_blocks are on, as in
  // transformers.
  static Result<ChatTemplate> parse(std::string_view source, std::string bos, std::string eos,
                                    TemplateLimits limits = {});
  // From tokenizer.chat_template; kNotFound when the file has none.
  static Result<ChatTemplate> create(const model::GgufFile& file, const Tokenizer& tokenizer);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<std::vector<TemplateSegment>> render(std::span<const Message> messages, const RenderOptions& options) const;
  Result<std::string> render_text(std::span<const Message> messages, const RenderOptions& options) const;
  Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::span<const Message> messages,
                                      const RenderOptions& options) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::text
