// How Python writes one value in a given width and form: the part behind the ":" of "{:>8.2f}", and of "%8.2f".
#pragma once

#include "text/jinja/value.h"

namespace headwater::text::jinja {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  static constexpr size_t kWidthMax = 1000;  // and of the precision

  Text fill = Text(" ", true);  // one character
  char align = '\0';            // < > ^, or = for zeros behind the sign; none: numbers stand right, texts left
  char sign = '-';              // + and blank: what stands before a number that is not negative
  bool alternate = false;       // 0x before hexadecimal digits and the like
  char separator = '\0';        // of thousands
  size_t width = 0;
  std::optional<size_t> precision;
  char type = '\0';
};

Result<FormatSpec> parse_format_spec(const Call& call, const Text& text);
// kInvalidArgument where Python has an error, kUnsupported for the rest that is not known here.
Result<Text> format_value(const Call& call, const Value& value, const FormatSpec& spec);
// Decimal digits at `at` of bytes, which then stands behind them; what is beyond the limit is just above it.
size_t read_width(std::string_view bytes, size_t& at);

}  // namespace headwater::text::jinja
