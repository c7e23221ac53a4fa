// Always-on assertions for what cannot happen. A failed check is a bug of ours: it prints where and stops the process.
#pragma once

namespace headwater {

[[noreturn]] void check_failed(const char* message, const char* file, unsigned line, const char* function);

// The place is the caller's, by the builtins of GCC and Clang: Clang 14 has no std::source_location.
inline void check(bool condition, const char* message, const char* file = __builtin_FILE(),
                  unsigned line = __builtin_LINE(), const char* function = __builtin_FUNCTION()) {
  if (!condition) [[unlikely]]
    check_failed(message, file, line, function);
}

}  // namespace headwater
