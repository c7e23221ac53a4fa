#include "text/jinja/letter_case.h"

#include <utf8proc.h>

#include <algorithm>

namespace headwater::text::jinja {
namespace {

// Where SpecialCasing.txt of Unicode has letters of which the upper case is several characters.
bool grows_in_upper_case(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {{0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},
                                                              {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A},
                                                              {0x1F50, 0x1F57}, {0x1F80, 0x1FFF}, {0xFB00, 0xFB17}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

bool is_cased(char32_t c) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  return utf8proc_islower(code) != 0 || utf8proc_isupper(code) != 0 || utf8proc_category(code) == UTF8PROC_CATEGORY_LT;
}

}  // namespace

Result<Text> with_case(const Call& call, const Text& text, LetterCase letter_case) {
  HEADWATER_RETURN_IF_ERROR(call.rewrite(text.size()));
  HEADWATER_RETURN_IF_ERROR(call.build(text.footprint()));
  Text result;
  result.set_safe(text.is_safe());
  bool begins = true;  // a title's first letter
  std::optional<char32_t> unknown;
  result.append_rewritten(text, [&](char32_t c, std::string& bytes) {
    const bool is_title = begins && (letter_case == LetterCase::kTitle || letter_case == LetterCase::kCapitalized);
    begins = begins && letter_case == LetterCase::kTitle;
    if (letter_case == LetterCase::kTitle) begins = !is_cased(c);
    const bool is_lower = !is_title && letter_case != LetterCase::kUpper;
    const auto code = static_cast<utf8proc_int32_t>(c);
    if (is_lower ? c == 0x3A3 : grows_in_upper_case(c)) unknown = c;
    if (!is_lower && c == 0xDF) {
      bytes += is_title ? "Ss" : "SS";
    } else if (is_lower && c == 0x130) {
      bytes += "i\u0307";
    } else {
      append_utf8(static_cast<char32_t>(is_lower   ? utf8proc_tolower(code)
                                        : is_title ? utf8proc_totitle(code)
                                                   : utf8proc_toupper(code)),
                  bytes);
    }
  });
  if (unknown) {
    return call.unsupported("the letter U+{:04X} changes its case in a way that is not known here",
                            static_cast<uint32_t>(*unknown));
  }
  return result;
}

}  // namespace headwater::text::jinja
