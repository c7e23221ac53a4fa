// Renderings against jinja2: tools/make_template_cases.py wrote the templates, conversations and what they give.
#include <gtest/gtest.h>

#include <optional>

#include "golden/json_lines.h"
#include "text/chat_template.h"

namespace headwater::text {
namespace {

std::vector<Message> messages_of(const boost::json::object& line) {
  std::vector<Message> messages;
  for (const boost::json::value& message : line.at("messages").as_array()) {
    messages.emplace_back(std::string(message.at(0).as_string()), std::string(message.at(1).as_string()));
  }
  return messages;
}

TEST(ChatTemplateGolden, RendersAsJinja2Does) {
  const auto lines = testing::read_json_lines(HEADWATER_SOURCE_DIR "/tests/golden/chat_templates.jsonl");
  std::optional<ChatTemplate> chat_template;
  std::string name;
  size_t renderings = 0, continued = 0;
  for (const boost::json::object& line : lines) {
    if (line.contains("source")) {
      name = std::string(line.at("source").as_string());
      auto parsed =
          ChatTemplate::parse(name, std::string(line.at("bos").as_string()), std::string(line.at("eos").as_string()));
      ASSERT_TRUE(parsed.is_ok()) << name << "\n" << parsed.status().message();
      chat_template.emplace(std::move(parsed).value());
      continue;
    }
    ++renderings;
    const RenderOptions options{
        .add_generation_prompt = line.at("generate").as_bool(),
        .continue_final_message = line.contains("continue"),
        .now = std::tm{.tm_mday = 26, .tm_mon = 6, .tm_year = 124, .tm_wday = 5, .tm_yday = 207}};
    continued += options.continue_final_message;
    const auto text = chat_template->render_text(messages_of(line), options);
    if (line.contains("error")) {
      EXPECT_FALSE(text.is_ok()) << name << "\n" << *text;
      const bool is_raised = line.at("error").is_string();
      EXPECT_TRUE(!is_raised || text.status().message() == line.at("error").as_string()) << name << "\n"
                                                                                         << text.status().message();
    } else if (text.is_ok()) {
      EXPECT_EQ(*text, line.at("text").as_string()) << name;
    } else {
      ADD_FAILURE() << name << "\n" << text.status().message();
    }
  }
  EXPECT_GE(renderings, 350u);
  EXPECT_GE(continued, 50u);
}

}  // namespace
}  // namespace headwater::text
