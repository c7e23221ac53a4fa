#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "core/core.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_mark(char32_t character) {
  const utf8proc_category_t kind = category(character);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ME;
}

// Alphabetic but for Other_Alphabetic outside the marks, which are the circled and squared Latin letters.
bool is_word(char32_t character) {
  switch (category(character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_SO:
      return (character >= 0x24B6 && character <= 0x24E9) || (character >= 0x1F130 && character <= 0x1F149) ||
             (character >= 0x1F150 && character <= 0x1F169) || (character >= 0x1F170 && character <= 0x1F189);
    default:
      return is_mark(character) || character == 0x200C || character == 0x200D;
  }
}

size_t last_character_begin(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

template <typename Visit>
void each_character(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    visit(character.code_point, text.substr(0, character.bytes));
    text.remove_prefix(character.bytes);
  }
}

int combining_class(int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Marks that follow one another are sorted by their classes (utf8proc's own sort takes the square of their number).
void sort_marks(std::vector<int32_t>& characters) {
  const auto by_class = [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); };
  for (auto begin = characters.begin(); begin != characters.end();) {
    const auto is_starter = [](int32_t character) { return combining_class(character) == 0; };
    begin = std::find_if_not(begin, characters.end(), is_starter);
    const auto end = std::find_if(begin, characters.end(), is_starter);
    if (!std::is_sorted(begin, end, by_class)) std::stable_sort(begin, end, by_class);
    begin = end;
  }
}

void append_normalized(std::string_view text, bool is_compatibility, bool composes, std::vector<int32_t>& characters,
                       std::string& out) {
  const int kind = is_compatibility ? UTF8PROC_COMPAT | UTF8PROC_STABLE : UTF8PROC_STABLE;
  const auto decompose = static_cast<utf8proc_option_t>(kind | UTF8PROC_DECOMPOSE);
  characters.clear();
  each_character(text, [&](char32_t character, std::string_view) {
    int32_t parts[32];  // the longest decomposition (U+FDFA) has 18
    int boundary_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(character), parts, 32, decompose, &boundary_class);
    check(count >= 0 && count <= 32, "a character's decomposition is longer than Unicode's longest");
    characters.insert(characters.end(), parts, parts + count);
  });
  sort_marks(characters);
  auto count = static_cast<utf8proc_ssize_t>(characters.size());
  if (composes) {
    const auto compose = static_cast<utf8proc_option_t>(kind | UTF8PROC_COMPOSE);
    count = utf8proc_normalize_utf32(characters.data(), count, compose);
    check(count >= 0, "utf8proc could not compose");
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(characters[static_cast<size_t>(i)]), out);
  }
}

}  // namespace

bool is_white_space(char32_t character) {
  if (character >= 0x09 && character <= 0x0D) return true;
  if (character == 0x85) return true;
  const utf8proc_category_t kind = category(character);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(first_character(text).code_point);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && begins_with_word(text.substr(last_character_begin(text)));
}

std::string_view trimmed_left(std::string_view text) {
  while (!text.empty() && is_white_space(first_character(text).code_point)) {
    text.remove_prefix(first_character(text).bytes);
  }
  return text;
}

std::string_view trimmed_right(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = last_character_begin(text);
    if (!is_white_space(first_character(text.substr(begin)).code_point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string normalized(std::string_view text, bool is_compatibility, bool composes) {
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> characters;
  // ASCII stays as it is, but for a character that marks follow.
  for (size_t at = 0; at < text.size();) {
    const size_t plain = ascii_prefix(text.substr(at));
    const size_t begin = at + plain < text.size() && plain > 0 ? at + plain - 1 : at + plain;
    size_t end = at + plain;
    while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x80) ++end;
    out.append(text, at, begin - at);
    if (begin < end) append_normalized(text.substr(begin, end - begin), is_compatibility, composes, characters, out);
    at = end;
  }
  return out;
}

std::string lowercased(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_character(text, [&](char32_t character, std::string_view) {
    if (character == 0x130) {
      out += "i\u0307";  // the one character whose lower case is two
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(character))), out);
    }
  });
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_character(text, [&](char32_t character, std::string_view bytes) {
    if (!is_mark(character)) out += bytes;
  });
  return out;
}

}  // namespace headwater::text
