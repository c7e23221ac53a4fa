#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "text/test_vocabulary.h"

namespace headwater::text {
namespace {

using ::testing::HasSubstr;

const std::vector<Message> kMessages = {{"user", "hi"}, {"assistant", "<|im_end|>"}};

Status parse_status(std::string_view source, TemplateLimits limits = {}) {
  return ChatTemplate::parse(source, "<s>", "<|im_end|>", limits).status();
}

Status render_status(std::string_view source, TemplateLimits limits = {}) {
  const auto parsed = ChatTemplate::parse(source, "<s>", "<|im_end|>", limits);
  EXPECT_TRUE(parsed.is_ok()) << source << "\n" << parsed.status().message();
  return parsed.is_ok() ? parsed->render(kMessages, {}).status() : parsed.status();
}

// The segments as text, with what the template does not own in «».
std::string marked(std::string_view source) {
  const auto segments = ChatTemplate::parse(source, "<s>", "<|im_end|>").value().render(kMessages, {});
  std::string out;
  for (const TemplateSegment& segment : segments.value()) {
    out += segment.template_owned ? segment.text : "«" + segment.text + "»";
  }
  return out;
}

TEST(ChatTemplate, SaysWhereAnUnknownConstructStands) {
  struct Case {
    std::string_view source;
    std::string_view place;
    std::string_view name;
  };
  for (const Case& unknown :
       {Case{"a\n  {{ x|frobnicate }}", "line 2, column 8", "\"frobnicate\""},
        Case{"{% call f() %}{% endcall %}", "line 1, column 4", "\"call\""},
        Case{"{% include 'x' %}", "line 1, column 4", "\"include\""},
        Case{"{{ x is wavy }}", "line 1, column 9", "\"wavy\""},
        Case{"\n\n{{ x.zfill(3) }}", "line 3, column 5", "\"zfill\""},
        Case{"{{ frobnicate('%d') }}", "line 1, column 4", "\"frobnicate\""},
        Case{"{{ range(*x) }}", "line 1, column 10", "unpacked"},
        Case{"{{ cycler('a') }}", "line 1, column 4", "cycler"}, Case{"{{ self }}", "line 1, column 4", "self"},
        Case{"{% macro f() %}{{ caller() }}{% endmacro %}", "line 1, column 19", "caller"},
        Case{"{% for x in y recursive %}{% endfor %}", "line 1, column 15", "recursive"},
        Case{"{% for x in y %}{{ loop.cycle }}{% endfor %}", "line 1, column 24", "loop.cycle"},
        Case{"{{ x|groupby('y') }}", "line 1, column 6", "groupby"},
        Case{"{{ 0x10 }}", "line 1, column 4", "decimal"}}) {
    const Status status = parse_status(unknown.source);
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << unknown.source;
    EXPECT_THAT(status.message(), HasSubstr(unknown.place)) << unknown.source;
    EXPECT_THAT(status.message(), HasSubstr(unknown.name)) << unknown.source;
  }
}

TEST(ChatTemplate, RefusesWhatIsNoTemplate) {
  for (const std::string_view source : {"{{",
                                        "{{ x",
                                        "{{ }}",
                                        "{% if x %}",
                                        "{% endif %}",
                                        "{% for x in y %}{% endif %}",
                                        "{{ 'x }}",
                                        "{# x",
                                        "{{ (1 }}",
                                        "{{ 1 2 }}",
                                        "{{ x| }}",
                                        "{{ x is }}",
                                        "{% set %}",
                                        "{% set x %",
                                        "{{ [1 }}",
                                        "{{ {1} }}",
                                        "{{ a..b }}",
                                        "{% if x %}{% else %}{% else %}{% endif %}",
                                        "{{ x[] }}",
                                        "{{ @ }}",
                                        "{{ range(1,2,3,4) }}",
                                        "{% break %}",
                                        "{% macro f(a=1, b) %}{% endmacro %}",
                                        "{% macro f(a, a) %}{% endmacro %}",
                                        "{% set a,, b = 1 %}",
                                        "{% set () = 1 %}",
                                        "{% for a.b in c %}{% endfor %}",
                                        "{% with a %}{% endwith %}",
                                        "{% raw %}x",
                                        "{% set true = 1 %}",
                                        "{{ '\\uD800' }}",
                                        "{{ x|replace('a') }}",
                                        "\xFF"}) {
    EXPECT_FALSE(parse_status(source).is_ok()) << source;
  }
}

TEST(ChatTemplate, SaysWhereAnEvaluationFails) {
  const Status status = render_status("ok\n{{ messages[7].role.x }}");
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("line 2, column 15"));
  EXPECT_EQ(render_status("{{ 'x'|upper ~ 'ﬁ'|upper }}").code(), ErrorCode::kUnsupported);
  EXPECT_EQ(render_status("{{ messages|map('upper') }}").code(), ErrorCode::kUnsupported);
  EXPECT_EQ(render_status("{{ messages[0].items }}").code(), ErrorCode::kUnsupported);
  EXPECT_EQ(render_status("{{ 9223372036854775807 + 1 }}").code(), ErrorCode::kUnsupported);
}

TEST(ChatTemplate, GivesTheMessageOfRaiseException) {
  const Status status = render_status("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "roles must alternate");
}

TEST(ChatTemplate, AllowsACallThatIsGuardedByIsDefined) {
  EXPECT_EQ(marked("{% if f is defined %}{{ f('x') }}{% else %}none{% endif %}"), "none");
}

TEST(ChatTemplate, KeepsWhatMessagesSayApartThroughEveryOperation) {
  EXPECT_EQ(marked("<{{ messages[0].content }}>"), "<«hi»>");
  EXPECT_EQ(marked("{{ '<' + messages[0]['role'] + '>' ~ messages[0].content }}"), "<«user»>«hi»");
  EXPECT_EQ(marked("{{ ('  ' + messages[0].content + ' ')|trim }}{{ messages[0].content[0] }}"), "«hih»");
  EXPECT_EQ(marked("{{ ('a' + messages[0].content + 'b')[1:-1] }}"), "«hi»");
  EXPECT_EQ(marked("{{ ('a' + messages[0].content + 'b')[::-1]|upper }}"), "B«IH»A");
  EXPECT_EQ(marked("{{ 'x-y'|replace('-', messages[0].content) }}"), "x«hi»y");
  EXPECT_EQ(marked("{{ messages[0].content|replace('h', 'H') }}"), "H«i»");
  EXPECT_EQ(marked("{{ ['a', messages[0].content]|join('-') }}"), "a-«hi»");
  EXPECT_EQ(marked("{{ (messages[0].content + ',b').split(',')|join('+') }}"), "«hi»+b");
  EXPECT_EQ(marked("{% for c in messages[0].content %}{{ c }}.{% endfor %}"), "«h».«i».");
  EXPECT_EQ(
      marked(
          "{{ messages[0].content * 2 }}{{ messages[0].content|first }}{{ messages[0].content|string|default('x') }}"),
      "«hihihhi»");
  EXPECT_EQ(marked("{% for k in {messages[0].content: 1} %}{{ k }}{% endfor %}"), "«hi»");
  EXPECT_EQ(marked("{{ '{}:{a:-^6}'.format(messages[0].content, a=messages[0].content) }}"), "«hi»:--«hi»--");
  EXPECT_EQ(marked("{{ '%s%5s' % (messages[0].content, messages[0].role) }}"), "«hi» «user»");
  EXPECT_EQ(marked("{{ (messages[0].content ~ '{:x>3}%3d').format(1) % 2 }}"), "«hi»xx1  2");
  EXPECT_EQ(marked("{{ 'ab'.replace('', messages[0].content) }}"), "«hi»a«hi»b«hi»");
  EXPECT_EQ(marked("{{ ('a-' + messages[0].content).partition('-')|join('+') }}"), "a+-+«hi»");
  EXPECT_EQ(marked("{{ ['<' , messages[0].content]|map('format')|map('upper')|list|join('|') }}"), "<|«HI»");
  EXPECT_EQ(marked("{{ 'a\nb'|indent(messages[0].content) }}"), "a\n«hi»b");
  EXPECT_EQ(marked("{{ (messages[0].content ~ '\n' ~ messages[0].content)|indent(1) }}"), "«hi»\n «hi»");
  EXPECT_EQ(marked("{{ [1, 2]|tojson(separators=(messages[0].content, ':')) }}"), "[1«hi»2]");
  EXPECT_EQ(marked("{{ [1]|tojson(indent=messages[0].content) }}"), "[\n«hi»1\n]");
  EXPECT_EQ(marked("{% set ns = namespace(x='') %}{% set ns.x = ns.x + messages[0].role %}{{ bos_token }}{{ ns.x }}"),
            "<s>«user»");
}

// A template may use a message as a format, or break its lines anew: what that inserts is the message's.
TEST(ChatTemplate, TakesWhatAMessageAsksForAsTheMessages) {
  const auto said = [](std::string_view source, std::string_view content) {
    const std::vector<Message> messages = {{"user", content}};
    std::string owned;
    const ChatTemplate parsed = ChatTemplate::parse(source, "", "").value();
    const std::vector<TemplateSegment> segments = parsed.render(messages, {}).value();
    for (const TemplateSegment& segment : segments) {
      if (segment.template_owned) owned += segment.text;
    }
    return owned;
  };
  EXPECT_EQ(said("{{ messages[0].content.format('') }}", "{0:<>9}{0:0<4}"), "");
  EXPECT_EQ(said("{{ messages[0].content % ('', '') }}", "%9s%-4s"), "");
  EXPECT_EQ(said("{{ messages[0].content % 1 }}", "%09d"), "1");
  EXPECT_EQ(said("{{ messages[0].content|indent(0) }}", "a\n\n\nb\r\nc"), "");
}

TEST(ChatTemplate, EncodesControlTokensOnlyWhereTheTemplateWroteThem) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  const auto parsed =
      ChatTemplate::parse("{% for m in messages %}<s>{{ m.role + ':' + m.content }}<|im_end|>{% endfor %}", "", "");
  const auto ids = parsed->encode(tokenizer, kMessages, {});
  ASSERT_TRUE(ids.is_ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), tokenizer.find("<|im_end|>")), 2);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), tokenizer.find("<s>")), 2);
  EXPECT_EQ(tokenizer.decode(*ids, false), "<s>user:hi<|im_end|><s>assistant:<|im_end|><|im_end|>");
}

TEST(ChatTemplate, NeverJoinsTheTemplatesTextWithAMessageToAControlToken) {
  const Tokenizer tokenizer = TestVocabulary("gpt-2").tokenizer();
  const std::vector<Message> messages = {{"user", "s>"}};
  const auto ids = ChatTemplate::parse("<{{ messages[0].content }}", "", "")->encode(tokenizer, messages, {});
  ASSERT_TRUE(ids.is_ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), tokenizer.find("<s>")), 0);
}

TEST(ChatTemplate, ReplacesInvalidUtf8InMessages) {
  const std::vector<Message> messages = {{"user", "a\xFFz"}};
  EXPECT_EQ(*ChatTemplate::parse("{{ messages[0].content }}", "", "")->render_text(messages, {}), "a\uFFFDz");
}

TEST(ChatTemplate, StopsAtItsLimits) {
  const std::string_view loop = "{% for a in range(1000) %}{% for b in range(1000) %}{{ a }}{% endfor %}{% endfor %}";
  EXPECT_EQ(render_status(loop).code(), ErrorCode::kExhausted);
  EXPECT_EQ(render_status("{{ 'x' * 101 }}", {.output_bytes = 100}).code(), ErrorCode::kExhausted);
  EXPECT_TRUE(render_status("{{ 'x' * 100 }}", {.output_bytes = 100}).is_ok());
  EXPECT_EQ(
      render_status("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}")
          .code(),
      ErrorCode::kExhausted);
  EXPECT_EQ(
      render_status("{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}").code(),
      ErrorCode::kExhausted);
  EXPECT_EQ(render_status("{{ range(999999999)|length }}").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(render_status("{% set ns = namespace(x=1) %}{% set ns.x = ns %}").code(), ErrorCode::kUnsupported);
  EXPECT_EQ(parse_status("abc", {.source_bytes = 2}).code(), ErrorCode::kExhausted);
}

std::string continued(std::string_view source, std::vector<Message> messages) {
  const RenderOptions options{.add_generation_prompt = false, .continue_final_message = true};
  const auto text = ChatTemplate::parse(source, "<s>", "</s>").value().render_text(messages, options);
  return text.is_ok() ? *text : "error: " + text.status().message();
}

TEST(ChatTemplate, EndsBehindTheContentOfAMessageThatIsContinued) {
  constexpr std::string_view kPlain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}";
  constexpr std::string_view kTrimmed = "{% for m in messages %}[{{ m.role }}]\n{{ m.content|trim }}</s>{% endfor %}";
  EXPECT_EQ(continued(kPlain, {{"user", "q"}, {"assistant", "Sure: "}}), "[user]q</s>[assistant]Sure: ");
  EXPECT_EQ(continued(kTrimmed, {{"user", "q"}, {"assistant", " Sure: "}}), "[user]\nq</s>[assistant]\nSure:");
  EXPECT_EQ(continued(kPlain, {{"user", "s"}, {"assistant", "s"}}), "[user]s</s>[assistant]s");
  EXPECT_EQ(continued(kPlain, {{"assistant", ""}}), "[assistant]");
  EXPECT_EQ(continued(kTrimmed, {{"assistant", ""}}), "[assistant]");
  EXPECT_EQ(continued("{{ messages[-1].content }} by {{ messages[-1].role }}", {{"me", "x"}}), "x");
}

TEST(ChatTemplate, RefusesToContinueAMessageThatIsNotInThePrompt) {
  EXPECT_THAT(continued("{{ messages[0].content }}!", {{"user", "q"}, {"assistant", "a"}}),
              HasSubstr("continue_final_message"));
  EXPECT_THAT(continued("{{ messages[0].content|upper }}", {{"user", "q"}}), HasSubstr("continue_final_message"));
  EXPECT_THAT(continued("{{ messages[-1].content.split('</think>')[-1] }}!", {{"a", "h</think>x "}}),
              HasSubstr("continue_final_message"));  // a part of it
  EXPECT_THAT(continued("x", {}), HasSubstr("continue_final_message"));
  const auto parsed = ChatTemplate::parse("{{ messages[0].content }}", "<s>", "</s>").value();
  EXPECT_FALSE(parsed.render(kMessages, {.continue_final_message = true}).is_ok());  // and a generation prompt
}

TEST(ChatTemplate, SeesVariablesThatCannotHideItsOwn) {
  const auto parsed = ChatTemplate::parse(
      "{{ enable_thinking is defined and enable_thinking is false }} {{ x }} {{ bos_token }}", "<s>", "</s>");
  EXPECT_EQ(
      parsed->render_text(kMessages, {.variables = {{"enable_thinking", false}, {"x", true}, {"bos_token", true}}})
          .value(),
      "True True <s>");
  EXPECT_EQ(parsed->render_text(kMessages, {}).value(), "False  <s>");
}

TEST(ChatTemplate, StopsWhereItNestsTooDeep) {
  const auto repeat = [](std::string_view text, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const auto& [open, close] : std::vector<std::pair<std::string_view, std::string_view>>{{"(", ")"},
                                                                                              {"[", "]"},
                                                                                              {"-", ""},
                                                                                              {"not ", ""},
                                                                                              {"x[", "]"},
                                                                                              {"", "|trim"},
                                                                                              {"", ".y"},
                                                                                              {"1 + ", ""},
                                                                                              {"x if x else ", ""}}) {
    const std::string deep = "{{ " + repeat(open, 100000) + "x" + repeat(close, 100000) + " }}";
    EXPECT_EQ(parse_status(deep).code(), ErrorCode::kExhausted) << open << close;
    const std::string flat = "{{ " + repeat(open, 10) + "x" + repeat(close, 10) + " }}";
    EXPECT_TRUE(parse_status(flat).is_ok()) << open << close << parse_status(flat).message();
  }
  EXPECT_EQ(parse_status(repeat("{% if x %}", 10000)).code(), ErrorCode::kExhausted);
  EXPECT_TRUE(parse_status("{{ " + repeat("'a' ~ ", 10000) + "'b' }}").is_ok());  // ~ does not nest
}

}  // namespace
}  // namespace headwater::text
