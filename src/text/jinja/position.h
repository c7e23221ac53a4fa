// Where in a template something stands, and errors that say so.
#pragma once

#include <cstdint>

#include "core/core.h"

namespace headwater::text::jinja {

struct Position {
  uint32_t line = 1;    // from 1
  uint32_t column = 1;  // from 1, in bytes
};

template <typename... Args>
Status error_at(Position where, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return error(code, "chat template, line {}, column {}: {}", where.line, where.column,
               fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace headwater::text::jinja
