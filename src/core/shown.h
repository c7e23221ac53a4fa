// Text of a file or a client as a message may hold it: one line that steers no terminal, and not too long.
#pragma once

#include <string>
#include <string_view>

namespace headwater {

inline constexpr size_t kShownCharactersMax = 60;

// Line feeds become \n; other control characters, and bytes that are not UTF-8, become \xNN. Beyond so many characters the
// text is cut ("...").
std::string shown(std::string_view text, size_t characters_max = kShownCharactersMax);

// The same in double quotes; those within, and backslashes, stand behind a backslash.
std::string quoted(std::string_view text, size_t characters_max = kShownCharactersMax);

}  // namespace headwater
