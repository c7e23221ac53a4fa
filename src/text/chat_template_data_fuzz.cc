// Any JSON as a conversation, for templates that use it in every way: rendering ends within the limits, and what comes
// from outside is never owned by the template.
#include <boost/json.hpp>
#include <cstdlib>

#include "text/chat_template.h"

using namespace headwater::text;

namespace {

constexpr std::string_view kTemplates[] = {
    // what most templates do
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}{% for t in tools or [] %}{{ t|tojson(indent=2) }}{% "
    "endfor %}",
    // everything as text
    "{{ messages }}{{ messages|tojson(sort_keys=true, ensure_ascii=true) }}{{ tools|string|e }}{{ documents|list|join "
    "}}",
    // a walk over what is there
    "{% macro walk(x) %}{% if x is mapping %}{% for k, v in x|dictsort %}{{ k|upper }}:{{ walk(v) }},{% endfor %}"
    "{% elif x is string %}{{ x|trim|replace('a', x)|title }}{{ x.split()|join('-') }}{{ x[::-1] }}{{ '%5s' % x }}"
    "{% elif x is iterable %}{% for i in x %}{{ loop.previtem is defined }}{{ walk(i) }}{% endfor %}"
    "{{ x|map('string')|unique|list|sort|join }}{% else %}{{ x|string|indent(2, true) }}{{ x|int }}{{ x|float }}{% "
    "endif %}"
    "{% endmacro %}{{ walk(messages) }}{{ walk(tools) }}{{ walk(documents) }}{{ walk(x) }}",
    // lookups and tests
    "{% for m in messages if m is mapping %}{% set ns = namespace(n=0) %}{{ m.get('content', 'x')|length if m.content "
    "is "
    "string }}{% for k, v in m.items() %}{% if v is number %}{% set ns.n = ns.n + v * 2 %}{% elif v in [none, true, 1, "
    "'a', "
    "[]] %}{% continue %}{% endif %}{{ k ~ v }}{% endfor %}{{ ns.n }}{{ m['items'] is defined }}{% endfor %}"
    "{{ messages|selectattr('role', 'defined')|map(attribute='role')|select('string')|join('|') }}",
};

const std::vector<ChatTemplate>& templates() {
  static const std::vector<ChatTemplate> kParsed = [] {
    const TemplateLimits limits{.steps = 50'000, .output_bytes = 1u << 20, .memory_bytes = 4u << 20};
    std::vector<ChatTemplate> parsed;
    for (const std::string_view source : kTemplates) {
      auto made = ChatTemplate::parse(source, "<s>", "</s>", limits);
      if (made) parsed.push_back(std::move(*made));
    }
    return parsed;
  }();
  return kParsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  boost::json::parse_options options;
  options.max_depth = 100;
  options.allow_invalid_utf8 = true;
  boost::system::error_code failed;
  const boost::json::value value =
      boost::json::parse(boost::json::string_view(reinterpret_cast<const char*>(data), size), failed, {}, options);
  if (failed || !value.is_object()) return 0;
  const boost::json::object& body = value.get_object();
  const auto field = [&](const char* name) {
    const boost::json::value* found = body.if_contains(name);
    return found == nullptr ? boost::json::value() : *found;
  };
  std::vector<Message> messages;
  const boost::json::value list = field("messages");
  if (list.is_array()) {
    for (const boost::json::value& message : list.get_array()) {
      if (message.is_object()) messages.emplace_back(message.get_object());
    }
  }
  RenderOptions render{.tools = field("tools"), .documents = field("documents"), .now = std::tm{}};
  render.continue_final_message = body.contains("continue");
  render.add_generation_prompt = !render.continue_final_message;
  render.variables["x"] = field("x");
  if (templates().size() != std::size(kTemplates)) std::abort();
  for (const ChatTemplate& chat_template : templates()) {
    const auto segments = chat_template.render(messages, render);
    if (!segments) continue;
    for (const TemplateSegment& segment : *segments) {
      // The letter thorn stands in no template, whatever its case.
      const bool has_thorn =
          segment.text.find("\xC3\xBE") != std::string::npos || segment.text.find("\xC3\x9E") != std::string::npos;
      if (segment.template_owned && has_thorn) std::abort();
    }
  }
  return 0;
}
