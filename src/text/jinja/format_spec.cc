#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/strings.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

bool is_one_of(std::string_view set, char c) {
  return c != '\0' && set.find(c) != std::string_view::npos;
}

Text padded(const Text& text, const FormatSpec& spec, char align) {
  const size_t length = count_characters(text.bytes());
  const size_t missing = spec.width > length ? spec.width - length : 0;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string fill;
  for (size_t i = 0; i < missing; ++i) fill += spec.fill.bytes();
  const size_t middle = before * spec.fill.size();
  Text out(fill.substr(0, middle), spec.fill.is_owned(0));
  out.append(text);
  out.append(fill.substr(middle), spec.fill.is_owned(0));
  return out;
}

Result<Text> format_text(const Call& call, const Text& text, const FormatSpec& spec) {
  const bool is_for_numbers = (spec.type != '\0' && spec.type != 's') || spec.sign != '-' || spec.alternate ||
                              spec.separator != '\0' || spec.align == '=';
  if (is_for_numbers) return call.wrong("a string is given where a format is for numbers");
  const std::vector<size_t> offsets = character_offsets(text.bytes());
  const size_t kept = std::min(spec.precision.value_or(offsets.size()), offsets.size() - 1);
  return padded(text.slice(0, offsets[kept]), spec, spec.align == '\0' ? '<' : spec.align);
}

std::string digits_of(uint64_t magnitude, char type, bool alternate) {
  switch (type) {
    case 'b':
      return fmt::format("{}{:b}", alternate ? "0b" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", alternate ? "0o" : "", magnitude);
    case 'x':
      return fmt::format("{}{:x}", alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", alternate ? "0X" : "", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string digits_of(double magnitude, const FormatSpec& spec) {
  const size_t precision = spec.precision.value_or(6);
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, precision);
    case 'G':
      return fmt::format("{:.{}G}", magnitude, precision);
    case 'F':
      return fmt::format("{:.{}F}", magnitude, precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      return fmt::format("{:.{}f}", magnitude, precision);
  }
}

void separate_thousands(std::string& digits, char separator) {
  const size_t end = digits.find_first_not_of("0123456789");
  for (size_t at = std::min(end, digits.size()); at > 3; at -= 3) digits.insert(at - 3, 1, separator);
}

// The digits behind the sign.
Result<std::string> magnitude_of(const Call& call, const Value& value, const Number& number, const FormatSpec& spec) {
  if (is_one_of("eEfFgG%", spec.type)) {
    if (spec.alternate) return call.unsupported("\"#\" in the format of a float");
    return digits_of(std::fabs(number.floating), spec);
  }
  if (!number.is_float && (spec.type == '\0' || is_one_of("dboxX", spec.type))) {
    if (spec.precision) return call.wrong("an integer is given where a format has a precision");
    const auto bits = static_cast<uint64_t>(number.integer);
    return digits_of(number.integer < 0 ? 0 - bits : bits, spec.type, spec.alternate);
  }
  if (number.is_float && spec.type == '\0' && !spec.precision && !spec.alternate) {
    HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, value));
    return text.bytes().substr(text.bytes().starts_with('-'));
  }
  if (is_one_of("cn", spec.type) || (number.is_float && spec.type == '\0')) {
    return call.unsupported("the types \"c\" and \"n\", and a precision without a type, in the format of a number");
  }
  return call.wrong("{} is given where a format has the type \"{}\"", value.type_name(), spec.type);
}

Result<Text> format_number(const Call& call, const Value& value, const Number& number, const FormatSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(std::string digits, magnitude_of(call, value, number, spec));
  const bool fills_with_zeros = spec.align == '=' && spec.fill.bytes() == "0";
  if (spec.separator != '\0') {
    if (fills_with_zeros || is_one_of("boxX", spec.type)) {
      return call.unsupported("thousands between leading zeros, or in a format that is not decimal");
    }
    separate_thousands(digits, spec.separator);
  }
  const bool is_negative = number.is_float ? std::signbit(number.floating) : number.integer < 0;
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align != '=') return padded(Text(sign + digits, true), spec, spec.align == '\0' ? '>' : spec.align);
  FormatSpec behind_sign = spec;
  const bool has_prefix = spec.alternate && is_one_of("boxX", spec.type);
  const std::string front = sign + digits.substr(0, has_prefix ? 2 : 0);
  behind_sign.width = spec.width > front.size() ? spec.width - front.size() : 0;
  Text out(front, true);
  out.append(padded(Text(digits.substr(has_prefix ? 2 : 0), true), behind_sign, '>'));
  return out;
}

}  // namespace

size_t read_width(std::string_view bytes, size_t& at) {
  size_t number = 0;
  for (; at < bytes.size() && bytes[at] >= '0' && bytes[at] <= '9'; ++at) {
    number = std::min(number * 10 + static_cast<size_t>(bytes[at] - '0'), FormatSpec::kWidthMax + 1);
  }
  return number;
}

Result<FormatSpec> parse_format_spec(const Call& call, const Text& text) {
  constexpr std::string_view kAligns = "<>=^";
  FormatSpec spec;
  const std::string_view bytes = text.bytes();
  size_t at = 0;
  const auto peek = [&] { return at < bytes.size() ? bytes[at] : '\0'; };
  const auto takes = [&](std::string_view set, char& taken) {
    if (is_one_of(set, peek())) taken = bytes[at++];
  };
  const size_t first = bytes.empty() ? 0 : first_character(bytes).bytes;
  const bool has_fill = first < bytes.size() && is_one_of(kAligns, bytes[first]);
  if (has_fill) {
    spec.fill = text.slice(0, first);
    at = first;
  }
  takes(kAligns, spec.align);
  takes("-+ ", spec.sign);
  if (peek() == '#') spec.alternate = ++at > 0;
  if (peek() == '0' && !has_fill) {
    spec.fill = text.slice(at, at + 1);
    if (spec.align == '\0') spec.align = '0';  // "=" for numbers, "<" for texts
  }
  spec.width = read_width(bytes, at);
  takes(",_", spec.separator);
  if (peek() == '.') {
    const size_t digits = ++at;
    spec.precision = read_width(bytes, at);
    if (at == digits) return call.wrong("the format \"{}\" has no digits behind its point", bytes);
  }
  if (at < bytes.size()) spec.type = bytes[at++];
  const bool is_known = at == bytes.size() && (spec.type == '\0' || is_one_of("sdboxXeEfFgG%cn", spec.type));
  if (!is_known) return call.wrong("\"{}\" is no format that Python knows", bytes);
  if (std::max(spec.width, spec.precision.value_or(0)) > FormatSpec::kWidthMax) {
    return call.unsupported("a format is at most {} wide here", FormatSpec::kWidthMax);
  }
  return spec;
}

Result<Text> format_value(const Call& call, const Value& value, const FormatSpec& given) {
  HEADWATER_RETURN_IF_ERROR(call.build(given.width * given.fill.size()));
  HEADWATER_RETURN_IF_ERROR(call.rewrite(given.width + 8 * given.precision.value_or(0)));
  FormatSpec spec = given;
  const auto number = number_of(value);
  if (spec.align == '0') spec.align = number ? '=' : '<';
  if (number) return format_number(call, value, *number, spec);
  if (value.text() == nullptr) return call.wrong("a format with a width or type is given {}", value.type_name());
  HEADWATER_RETURN_IF_ERROR(call.rewrite(value.text()->size()));
  return format_text(call, *value.text(), spec);
}

}  // namespace headwater::text::jinja
