#include "text/charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr size_t kWholeGraphemeBytesMax = 5;
constexpr size_t kStringBytesMax = 256;  // of a string that is looked up: a file's array may lead round in circles

size_t offset_of(uint32_t unit) {
  return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
}

uint32_t label_of(uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}

bool ends_string(uint32_t unit) {
  return unit >> 8 & 1;
}

// The bytes of the first extended grapheme cluster (UAX #29) of text, which is not empty.
size_t grapheme_bytes(std::string_view text) {
  Utf8Character last = first_character(text);
  size_t bytes = last.bytes;
  for (int32_t state = 0; bytes < text.size();) {
    const Utf8Character next = first_character(text.substr(bytes));
    if (utf8proc_grapheme_break_stateful(static_cast<int32_t>(last.code_point), static_cast<int32_t>(next.code_point),
                                         &state)) {
      break;
    }
    bytes += next.bytes;
    last = next;
  }
  return bytes;
}

}  // namespace

Result<Charsmap> Charsmap::create(std::string_view bytes) {
  uint32_t array_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&array_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || array_bytes > bytes.size() - 4 || array_bytes % 4 != 0) {
    return error(ErrorCode::kCorrupt, "the precompiled charsmap has {} bytes and claims an array of {}", bytes.size(),
                 array_bytes);
  }
  Charsmap map;
  map.units_.resize(array_bytes / 4);
  if (array_bytes > 0) std::memcpy(map.units_.data(), bytes.data() + 4, array_bytes);
  map.replacements_ = bytes.substr(4 + array_bytes);
  if (!is_valid_utf8(map.replacements_)) {
    return error(ErrorCode::kCorrupt, "the replacements of the precompiled charsmap are not valid UTF-8");
  }
  return map;
}

Charsmap::Found Charsmap::find(std::string_view text, bool longest) const {
  Found found;
  size_t node = offset_of(unit(0));
  text = text.substr(0, kStringBytesMax);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    const uint32_t here = unit(node);
    if (label_of(here) != byte) break;
    node ^= offset_of(here);
    if (!ends_string(here)) continue;
    const size_t begin = unit(node) & 0x7FFFFFFF;
    if (begin >= replacements_.size()) continue;
    // A file may point into the middle of a character; such a replacement is none.
    if ((static_cast<uint8_t>(replacements_[begin]) & 0xC0) == 0x80) continue;
    found = {i + 1, std::string_view(replacements_).substr(begin)};
    found.replacement = found.replacement.substr(0, found.replacement.find('\0'));
    if (!longest) break;
  }
  return found;
}

std::string Charsmap::apply(std::string_view text, bool is_longest_prefix, size_t bytes_max) const {
  std::string out;
  out.reserve(text.size());
  const auto replace = [&](std::string_view part) {
    const Found found = find(part, false);
    out += found.bytes > 0 ? found.replacement : part;
    return found.bytes > 0;
  };
  while (!text.empty() && out.size() <= bytes_max) {
    if (is_longest_prefix) {
      const Found found = find(text, true);
      size_t bytes = found.bytes > 0 ? found.bytes : first_character(text).bytes;
      // A file's string may end inside a character; what is left of it would not be valid.
      while (bytes < text.size() && (static_cast<uint8_t>(text[bytes]) & 0xC0) == 0x80) ++bytes;
      out += found.bytes > 0 ? found.replacement : text.substr(0, bytes);
      text.remove_prefix(bytes);
      continue;
    }
    std::string_view grapheme = text.substr(0, grapheme_bytes(text));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() <= kWholeGraphemeBytesMax) {
      if (const Found found = find(grapheme, false); found.bytes > 0) {
        out += found.replacement;
        continue;
      }
    }
    for (; !grapheme.empty(); grapheme.remove_prefix(first_character(grapheme).bytes)) {
      replace(grapheme.substr(0, first_character(grapheme).bytes));
    }
  }
  return out;
}

}  // namespace headwater::text
