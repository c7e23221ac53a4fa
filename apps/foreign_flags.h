// Flags that people type by habit from other servers, and what to type instead.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace headwater::apps {

// The first argument that belongs to llama-server or vLLM and not to us, answered; nothing if there is none.
std::optional<std::string> answer_foreign_flag(std::span<const char* const> arguments);

}  // namespace headwater::apps
