// Letters as Python's upper(), lower(), capitalize() and title() write them.
#pragma once

#include "text/jinja/value.h"

namespace headwater::text::jinja {

enum class LetterCase : uint8_t {
  kUpper,
  kLower,
  kCapitalized,  // the first character as a title's, the others lower
  kTitle,        // the first letter behind what is no letter as a title's, the others lower
};

// kUnsupported for the few letters that become several, or whose form depends on their neighbours: a ligature's upper
// case, a capital sigma's lower case.
Result<Text> with_case(const Call& call, const Text& text, LetterCase letter_case);

}  // namespace headwater::text::jinja
