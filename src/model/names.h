// Names that a file gives go into messages and onto terminals as they are.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace headwater::model {

inline bool is_printable(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
}

// Control characters, which a terminal would obey, become question marks.
inline std::string without_controls(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  return text;
}

}  // namespace headwater::model
