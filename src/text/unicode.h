// Unicode's normalisation forms and properties, from utf8proc. Texts are valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace headwater::text {

bool is_white_space(char32_t character);  // White_Space

// Whether the first (last) character is a word's: Alphabetic, a mark, a decimal digit, a connector, a joiner.
bool begins_with_word(std::string_view text);
bool ends_with_word(std::string_view text);
std::string_view trimmed_left(std::string_view text);  // of white space
std::string_view trimmed_right(std::string_view text);

// The text in a normalisation form (UAX #15): canonical or compatibility decomposition, then composition or not. Linear,
// but for sorting runs of marks (n log n).
std::string normalized(std::string_view text, bool is_compatibility, bool composes);
std::string lowercased(std::string_view text);  // character by character
std::string without_marks(std::string_view text);

}  // namespace headwater::text
