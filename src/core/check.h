// Always-on assertions for what cannot happen. A failed check is a bug of ours: it prints where and stops the process.
#pragma once

#include <source_location>

namespace headwater {

[[noreturn]] void check_failed(const char* message, std::source_location where);

inline void check(bool condition, const char* message,
                  std::source_location where = std::source_location::current()) {
  if (!condition) [[unlikely]] check_failed(message, where);
}

}  // namespace headwater
