#include "text/jinja/string_literal.h"

#include <charconv>

#include "text/utf8.h"

namespace headwater::text::jinja {
namespace {

// "\n" is followed by the character that it stands for.
constexpr std::string_view kSimple = "\\\\''\"\"n\nr\rt\tb\bf\fa\av\v";

Result<char32_t> hexadecimal(std::string_view digits, size_t count, Position where) {
  uint32_t value = 0;
  digits = digits.substr(0, count);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (digits.size() < count || parsed.ptr != digits.data() + count || value > 0x10FFFF || is_surrogate) {
    return error_at(where, ErrorCode::kInvalidArgument, "a string has an escape that names no character");
  }
  return static_cast<char32_t>(value);
}

}  // namespace

Result<std::string> unescape(std::string_view body, Position where) {
  std::string out;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      out += body[i];
      continue;
    }
    check(i + 1 < body.size(), "a string literal ends in an open escape");
    const char escape = body[++i];
    const size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
    size_t simple = 0;
    while (simple < kSimple.size() && kSimple[simple] != escape) simple += 2;
    if (digits > 0) {
      HEADWATER_ASSIGN_OR_RETURN(const char32_t code_point, hexadecimal(body.substr(i + 1), digits, where));
      append_utf8(code_point, out);
      i += digits;
    } else if (simple < kSimple.size()) {
      out += kSimple[simple + 1];
    } else if ((escape >= '0' && escape <= '7') || escape == 'N' || (escape & 0x80) != 0) {
      return error_at(where, ErrorCode::kUnsupported,
                      "a string has an escape other than \\n \\t \\r \\x \\u and the like");
    } else if (escape != '\n') {  // an escaped newline is nothing; other escapes are no escapes
      out += '\\';
      out += escape;
    }
  }
  return out;
}

}  // namespace headwater::text::jinja
