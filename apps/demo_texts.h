// What the demo asks: a long system prompt, a document that some chats quote as well, and the questions.
#pragma once

#include <span>
#include <string_view>

namespace headwater::apps {

struct DemoChat {
  std::string_view system;    // kHandbook or a prompt of the chat's own
  std::string_view document;  // quoted in front of the question; may be empty
  std::string_view question;
};

extern const std::string_view kHandbook;  // about 2,000 tokens
extern const std::string_view kTideNote;  // about 700 tokens

std::span<const DemoChat> demo_chats();  // 10 behind the handbook, 6 behind handbook and note, 2 on their own

}  // namespace headwater::apps
