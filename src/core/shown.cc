#include "core/shown.h"

#include <fmt/format.h>

#include <cstdint>

namespace headwater {
namespace {

// Bytes of the printable UTF-8 character that `text` begins with; 0 when it begins with a control character or with
// what is not UTF-8. (Overlong forms pass: they are printed, never interpreted.)
size_t printable_bytes(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const bool control = lead == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;  // U+0080 to U+009F
  return control ? 0 : bytes;
}

std::string escaped(std::string_view text, size_t characters_max, std::string_view behind_backslash) {
  std::string out;
  for (; !text.empty() && characters_max > 0; --characters_max) {
    const size_t bytes = printable_bytes(text);
    if (text[0] == '\n') {
      out += "\\n";
    } else if (bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else {
      if (behind_backslash.find(text[0]) != std::string_view::npos) out += '\\';
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return text.empty() ? out : out + "...";
}

}  // namespace

std::string shown(std::string_view text, size_t characters_max) {
  return escaped(text, characters_max, "");
}

std::string quoted(std::string_view text, size_t characters_max) {
  return '"' + escaped(text, characters_max, "\"\\") + '"';
}

}  // namespace headwater
