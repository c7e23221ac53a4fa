// Every fetched chat template with many conversations against jinja2: tools/make_template_hashes.py wrote the hashes.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "golden/json_lines.h"
#include "text/chat_template.h"

namespace headwater::text {
namespace {

const std::string kGolden = HEADWATER_SOURCE_DIR "/tests/golden/";
const std::string kTemplates = HEADWATER_SOURCE_DIR "/models/vocabularies/templates/";

// The first 12 hexadecimal digits of FNV-1a in 64 bits.
std::string hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", hash).substr(0, 12);
}

RenderOptions options_of(const boost::json::object& conversation) {
  const auto value = [&](const char* name) {
    const boost::json::value* found = conversation.if_contains(name);
    return found == nullptr ? boost::json::value() : *found;
  };
  RenderOptions options{
      .add_generation_prompt = !value("generate").is_bool() || value("generate").as_bool(),
      .tools = value("tools"),
      .documents = value("documents"),
      .now = std::tm{.tm_sec = 9, .tm_min = 7, .tm_hour = 14, .tm_mday = 5, .tm_mon = 2, .tm_year = 126}};
  if (value("variables").is_object()) options.variables = value("variables").as_object();
  return options;
}

std::vector<Message> messages_of(const boost::json::object& conversation) {
  std::vector<Message> messages;
  for (const boost::json::value& message : conversation.at("messages").as_array())
    messages.emplace_back(message.as_object());
  return messages;
}

// What went wrong; "" where the rendering is as it should be. expected: a hash, "!", or "!2" for the message errors[2].
std::string difference(const Result<std::string>& text, std::string_view expected, const boost::json::array& errors) {
  if (text) return hash_of(*text) == expected ? "" : "another text than " + std::string(expected) + ":\n" + *text;
  if (!expected.starts_with('!')) return "an error: " + text.status().message();
  if (expected == "!") return "";
  const auto& message = errors.at(static_cast<size_t>(std::stoi(std::string(expected.substr(1))))).as_string();
  return text.status().message() == std::string_view(message.data(), message.size())
             ? ""
             : "another error than " + std::string(message) + ": " + text.status().message();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ChatTemplateHashes, EveryFetchedTemplateRendersAsJinja2Does) {
  const auto conversations = testing::read_json_lines(kGolden + "chat_conversations.jsonl");
  size_t templates = 0, renderings = 0;
  for (const boost::json::object& line : testing::read_json_lines(kGolden + "chat_template_hashes.jsonl")) {
    const std::string name(line.at("template").as_string());
    const std::string source = read_file(kTemplates + name);
    ASSERT_FALSE(source.empty()) << name << " is missing; tools/fetch_vocabularies.sh fetches it";
    const auto parsed = ChatTemplate::parse(source, "<s>", "</s>");
    ASSERT_TRUE(parsed.is_ok()) << name << ": " << parsed.status().message();
    ++templates;
    std::istringstream results{std::string(line.at("results").as_string())};
    for (const boost::json::object& conversation : conversations) {
      std::string expected;
      results >> expected;
      const auto text = parsed->render_text(messages_of(conversation), options_of(conversation));
      EXPECT_EQ(difference(text, expected, line.at("errors").as_array()), "")
          << name << " with " << conversation.at("name");
      ++renderings;
    }
  }
  EXPECT_EQ(templates, 70u);
  EXPECT_GE(renderings, 70u * 60);
}

}  // namespace
}  // namespace headwater::text
