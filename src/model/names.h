// Names that a file gives go into messages and onto terminals as they are.
#pragma once

#include <algorithm>
#include <string_view>

namespace headwater::model {

inline bool is_printable(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace headwater::model
