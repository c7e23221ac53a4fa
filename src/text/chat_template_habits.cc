// What a template expects of messages that can be written in two ways, found by trying.
#include "text/chat_template.h"

namespace headwater::text {

bool ChatTemplate::reads_parts() const {
  constexpr std::string_view kMark = "A mark.";
  const RenderOptions options{.now = std::tm{}};
  const Message text[] = {{"user", kMark}};
  const Message parts[] = {Message(boost::json::object{
      {"role", "user"}, {"content", boost::json::array{boost::json::object{{"type", "text"}, {"text", "A mark."}}}}})};
  const auto of_text = render_text(text, options);
  const auto of_parts = render_text(parts, options);
  return of_text && of_parts && *of_text == *of_parts && of_text->find(kMark) != std::string::npos;
}

bool ChatTemplate::reads_argument_objects() const {
  const auto with = [&](const json::Value& arguments) {
    const boost::json::object call{{"id", "call00001"},  // nine characters, as some templates ask
                                   {"type", "function"},
                                   {"function", {{"name", "f"}, {"arguments", arguments}}}};
    const Message messages[] = {
        {"user", "u"},
        Message(boost::json::object{{"role", "assistant"}, {"content", ""}, {"tool_calls", boost::json::array{call}}})};
    return render_text(messages, {.add_generation_prompt = false, .now = std::tm{}});
  };
  const auto of_object = with(boost::json::object{{"a", "A mark."}});
  if (!of_object) return !with("{\"a\": \"A mark.\"}");
  // Python's way to write a mapping shows that the template took the object for a text.
  return of_object->find("'A mark.'") == std::string::npos;
}

}  // namespace headwater::text
