// UTF-8 as the Unicode standard defines it (chapter 3.9, table 3-7: no surrogates, no overlong forms).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headwater::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8State : uint8_t { kWhole, kIncomplete, kInvalid };

struct Utf8Character {
  Utf8State state;
  uint8_t bytes;        // of the character, or of the maximal part that could have begun one; at least 1
  char32_t code_point;  // where state is kWhole
};

// The character at the front of text, which is not empty. kIncomplete: text ends where more bytes are needed.
Utf8Character first_character(std::string_view text);

size_t ascii_prefix(std::string_view text);               // how many bytes text has before the first that is not ASCII
void append_utf8(char32_t code_point, std::string& out);  // a code point that is not a surrogate, at most U+10FFFF
bool is_valid_utf8(std::string_view text);
// Appends text with U+FFFD for each maximal invalid subsequence ("U+FFFD Substitution of Maximal Subparts").
void append_valid_utf8(std::string_view text, std::string& out);
size_t count_characters(std::string_view valid_utf8);

}  // namespace headwater::text
