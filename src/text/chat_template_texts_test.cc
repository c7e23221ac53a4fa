#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace headwater::text {
namespace {

using ::testing::HasSubstr;

const std::vector<Message> kMessages = {{"user", "hi"}};

std::string rendered(const Result<ChatTemplate>& made, const RenderOptions& options = {}) {
  if (!made) return "error: " + made.status().message();
  return made->render_text(kMessages, options).value();
}

TEST(ChatTemplateTexts, AFileOfItsOwnGoesBeforeTheConfiguration) {
  constexpr std::string_view kConfig =
      R"({"chat_template": "config {{ bos_token }}", "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})";
  EXPECT_EQ(rendered(ChatTemplate::from_texts("file {{ bos_token }}{{ eos_token }}", kConfig)), "file <s></s>");
  EXPECT_EQ(rendered(ChatTemplate::from_texts("", kConfig)), "config <s>");
  EXPECT_EQ(rendered(ChatTemplate::from_texts("file {{ bos_token }}", "")), "file ");
}

TEST(ChatTemplateTexts, ANamedTemplateServesConversationsWithTools) {
  const auto made = ChatTemplate::from_texts(
      "",
      R"({"chat_template": [{"name": "rag", "template": "x"}, {"name": "tool_use", "template": "tools {{ tools|length }}"},
              {"name": "default", "template": "plain"}], "bos_token": null})");
  EXPECT_EQ(rendered(made), "plain");
  EXPECT_EQ(rendered(made, {.tools = boost::json::array{boost::json::object{}}}), "tools 1");
  EXPECT_EQ(rendered(made, {.tools = boost::json::array{}}), "plain");
}

TEST(ChatTemplateTexts, WhatHoldsNoTemplateIsRefused) {
  for (const char* config : {"", "{}", R"({"chat_template": null})", R"({"chat_template": 5})",
                             R"({"chat_template": [5, {"name": "default"}, {"name": 1, "template": "x"}]})"}) {
    EXPECT_EQ(ChatTemplate::from_texts("", config).status().code(), ErrorCode::kNotFound) << config;
  }
  EXPECT_EQ(ChatTemplate::from_texts("", "[]").status().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(ChatTemplate::from_texts("x", "{").status().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(ChatTemplate::from_texts("{% if %}", "").status().message(), HasSubstr("line 1, column 7"));
}

TEST(ChatTemplateHabits, AreFoundByTrying) {
  const auto parsed = [](std::string_view source) { return ChatTemplate::parse(source, "", "").value(); };
  const auto texts = parsed("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_FALSE(texts.reads_parts());
  EXPECT_TRUE(parsed("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                     "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}")
                  .reads_parts());
  EXPECT_FALSE(parsed("{{ raise_exception('no') }}").reads_parts());
  EXPECT_FALSE(parsed("nothing of the message").reads_parts());
  EXPECT_TRUE(texts.reads_argument_objects()) << "it does not look at them";
  const std::string calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments";
  EXPECT_TRUE(parsed(calls + "|tojson }}{% endfor %}{% endfor %}").reads_argument_objects());
  EXPECT_FALSE(parsed(calls + " }}{% endfor %}{% endfor %}").reads_argument_objects());
  EXPECT_FALSE(parsed(calls + " + '' }}{% endfor %}{% endfor %}").reads_argument_objects()) << "it refuses objects";
}

}  // namespace
}  // namespace headwater::text
