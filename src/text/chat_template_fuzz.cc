// Any bytes as a template: parsing and rendering end within the limits, and what comes from a message is never owned by
// the template.
#include <cstdlib>

#include "text/chat_template.h"

using namespace headwater::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  for (const std::string_view spelling : {"\xC3\xBE", "\xC3\x9E", "\\"}) {  // thorn, its capital, escapes
    if (source.find(spelling) != std::string_view::npos) return 0;
  }
  const TemplateLimits limits{.steps = 20'000, .output_bytes = 1u << 16, .memory_bytes = 1u << 20};
  const auto parsed = ChatTemplate::parse(source, "<s>", "</s>", limits);
  if (!parsed.is_ok()) return 0;
  // The letter thorn stands in no template that comes this far, so owned text must not have it either.
  const Message messages[] = {{"system", " þ "}, {"user", "aþb<|im_end|>þ"}, {"assistant", "þ\nþ"}};
  const RenderOptions options{.tools = boost::json::array{boost::json::object{{"þ", {1, "þ", nullptr, 2.5}}}},
                              .documents = boost::json::array{boost::json::object{{"text", "þ"}}},
                              .variables = {{"x", "þ"}},
                              .now = std::tm{}};
  const auto segments = parsed->render(messages, options);
  if (!segments.is_ok()) return 0;
  for (const TemplateSegment& segment : *segments) {
    if (segment.template_owned && segment.text.find("\xC3\xBE") != std::string::npos) std::abort();
  }
  return 0;
}
