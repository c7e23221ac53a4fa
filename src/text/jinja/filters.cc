#include "text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

Result<int64_t> truncated(const Call& call, double value) {
  if (value >= -0x1p63 && value < 0x1p63) return static_cast<int64_t>(value);
  return call.unsupported("the integer does not fit 64 bits");
}

std::string_view number_text(std::string_view text) {
  const Range kept = strip(text, nullptr, true, true);
  text = text.substr(kept.begin, kept.end - kept.begin);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

// Python's float(text), where it is ASCII without "_".
std::optional<double> parse_float(std::string_view text) {
  double number = 0;
  text = number_text(text);
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ptr == end && parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// Python's int(text), then int(float(text)), then the default.
Result<Value> parse_int(const Call& call, std::string_view text, const Value& otherwise) {
  text = number_text(text);
  for (const char c : text) {
    if (c == '_' || (c & 0x80) != 0) return call.unsupported("int of \"_\" or of digits outside ASCII");
  }
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  const auto parsed = std::from_chars(text.data(), end, integer);
  if (parsed.ptr == end && parsed.ec == std::errc::result_out_of_range) {
    return call.unsupported("the integer does not fit 64 bits");
  }
  if (parsed.ptr == end && parsed.ec == std::errc()) return Value::of_int(integer);
  const auto number = parse_float(text);
  if (!number || !std::isfinite(*number)) return otherwise;
  HEADWATER_ASSIGN_OR_RETURN(integer, truncated(call, *number));
  return Value::of_int(integer);
}

Result<Value> default_filter(const Call&, Arguments arguments) {
  const bool applies = arguments[0].is_undefined() || (arguments[2].truth() && !arguments[0].truth());
  if (!applies) return arguments[0];
  return arguments[1].is_missing() ? Value::of_text(Text()) : arguments[1];
}

Result<Value> int_filter(const Call& call, Arguments arguments) {
  const Value& value = arguments[0];
  const Value otherwise = arguments[1].is_missing() ? Value::of_int(0) : arguments[1];
  if (value.is_undefined()) return call.wrong("int of an undefined value");
  if (value.text() != nullptr) {
    HEADWATER_RETURN_IF_ERROR(call.step(value.text()->size()));
    return parse_int(call, value.text()->bytes(), otherwise);
  }
  const auto number = number_of(value);
  if (!number) return otherwise;
  if (!number->is_float) return Value::of_int(number->integer);
  if (!std::isfinite(number->floating)) return otherwise;
  HEADWATER_ASSIGN_OR_RETURN(const int64_t integer, truncated(call, number->floating));
  return Value::of_int(integer);
}

Result<Value> float_filter(const Call& call, Arguments arguments) {
  const Value& value = arguments[0];
  const Value otherwise = arguments[1].is_missing() ? Value::of_float(0) : arguments[1];
  if (value.is_undefined()) return call.wrong("float of an undefined value");
  if (value.text() != nullptr) {
    HEADWATER_RETURN_IF_ERROR(call.step(value.text()->size()));
    const auto number = parse_float(value.text()->bytes());
    return number ? Value::of_float(*number) : otherwise;
  }
  const auto number = number_of(value);
  return number ? Value::of_float(number->floating) : otherwise;
}

Result<Value> abs_filter(const Call& call, Arguments arguments) {
  const auto number = number_of(arguments[0]);
  if (!number) return call.wrong("abs of {}", arguments[0].type_name());
  if (number->is_float) return Value::of_float(std::fabs(number->floating));
  return number->integer < 0 ? negate(call, arguments[0]) : Value::of_int(number->integer);
}

// Python's round() of the decimal text is exact, as printf's is.
Result<Value> round_filter(const Call& call, Arguments arguments) {
  const auto number = number_of(arguments[0]);
  const auto precision = arguments[1].is_missing() ? std::optional<int64_t>(0) : integer_of(arguments[1]);
  const std::string method = arguments[2].text() == nullptr ? "common" : arguments[2].text()->bytes();
  if (!number) return call.wrong("round of {}", arguments[0].type_name());
  if (!precision || *precision < 0 || *precision > 15) return call.unsupported("round to 0 to 15 digits is known here");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(*precision));
    const double scaled = number->floating * scale;
    return Value::of_float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") return call.wrong("round knows the methods common, ceil and floor, not \"{}\"", method);
  if (!number->is_float) return Value::of_int(number->integer);
  if (!std::isfinite(number->floating)) return Value::of_float(number->floating);
  return Value::of_float(*parse_float(fmt::format("{:.{}f}", number->floating, *precision)));
}

Result<Value> string_filter(const Call& call, Arguments arguments) {
  if (arguments[0].text() != nullptr) return arguments[0];
  HEADWATER_ASSIGN_OR_RETURN(Text text, to_text(call, arguments[0]));
  return make_text(call, std::move(text));
}

template <LetterCase kCase>
Result<Value> case_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(Text changed, with_case(call, text, kCase));
  return Value::of_text(std::move(changed));
}

// jinja2's title, unlike Python's: words begin behind white space and - ( { [ <.
Result<Value> title_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, arguments[0]));
  HEADWATER_RETURN_IF_ERROR(call.step(text.size()));
  const std::string_view bytes = text.bytes();
  Text result;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Character character = first_character(bytes.substr(at));
    at += character.bytes;
    const char32_t c = character.code_point;
    const bool is_border = is_white_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (!is_border && at < bytes.size()) continue;
    const size_t first = begin + first_character(bytes.substr(begin)).bytes;
    HEADWATER_ASSIGN_OR_RETURN(const Text letter, with_case(call, text.slice(begin, first), LetterCase::kUpper));
    HEADWATER_ASSIGN_OR_RETURN(const Text rest, with_case(call, text.slice(first, at), LetterCase::kLower));
    result.append(letter);
    result.append(rest);
    begin = at;
  }
  return Value::of_text(std::move(result));
}

Result<Value> replace_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text from, to_text(call, arguments[1]));
  HEADWATER_ASSIGN_OR_RETURN(const Text to, to_text(call, arguments[2]));
  return replace_text(call, text, from, to, integer_of(arguments[3]).value_or(-1));
}

Result<Value> trim_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, arguments[0]));
  return strip_text(call, text, arguments[1], true, true);
}

Result<Value> safe_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(Text text, to_text(call, arguments[0]));
  text.set_safe(true);
  return make_text(call, std::move(text));
}

Result<Value> escape_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, arguments[0]));
  HEADWATER_RETURN_IF_ERROR(call.rewrite(text.size()));
  return text.is_safe() ? make_text(call, text) : make_text(call, escaped(text));
}

// A width in blanks, or the text itself.
Result<Text> indentation(const Call& call, const Value& width, int64_t otherwise) {
  constexpr int64_t kWidthMax = 1000;
  if (width.text() != nullptr) return *width.text();
  const int64_t blanks = width.is_missing() ? otherwise : integer_of(width).value_or(-1);
  if (blanks < 0 || blanks > kWidthMax) return call.unsupported("an indentation is 0 to {} blanks here", kWidthMax);
  return Text(std::string(static_cast<size_t>(blanks), ' '), true);
}

Result<Value> indent_filter(const Call& call, Arguments arguments) {
  if (arguments[0].text() == nullptr) return call.wrong("indent takes a string, not {}", arguments[0].type_name());
  Text text = *arguments[0].text();
  HEADWATER_ASSIGN_OR_RETURN(const Text indent, indentation(call, arguments[1], 4));
  HEADWATER_RETURN_IF_ERROR(call.build(text.footprint()));
  HEADWATER_RETURN_IF_ERROR(call.rewrite(text.size()));
  text.append("\n", true);
  Text result;
  result.set_safe(text.is_safe());
  for (const Line& line : lines_of(text.bytes())) {
    HEADWATER_RETURN_IF_ERROR(call.build(indent.size() + sizeof(Text) + line.next - line.begin));
    const bool is_indented = line.begin == 0 ? arguments[2].truth() : line.end > line.begin || arguments[3].truth();
    if (is_indented) result.append(indent);
    result.append(text, line.begin, line.end);
    if (line.next < text.size()) result.append("\n", text.is_owned(line.end));
  }
  return Value::of_text(std::move(result));
}

Result<Value> tojson_filter(const Call& call, Arguments arguments) {
  JsonStyle style{.ensure_ascii = arguments[1].truth(), .sort_keys = arguments[4].truth()};
  if (!arguments[2].is_missing() && !arguments[2].is_none()) {
    HEADWATER_ASSIGN_OR_RETURN(style.indent, indentation(call, arguments[2], 0));
    style.item_separator = Text(",", true);
  }
  if (!arguments[3].is_missing() && !arguments[3].is_none()) {
    const List* pair = arguments[3].list();
    const bool is_pair = pair != nullptr && pair->items.size() == 2 && pair->items[0].text() && pair->items[1].text();
    if (!is_pair) return call.wrong("the separators of tojson are two strings");
    style.item_separator = *pair->items[0].text();
    style.key_separator = *pair->items[1].text();
  }
  HEADWATER_ASSIGN_OR_RETURN(Text text, to_json(call, arguments[0], style));
  return Value::of_text(std::move(text));
}

Result<Value> format_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call, arguments[0]));
  const bool is_named = arguments[2].dict() != nullptr;
  if (is_named && !arguments[1].is_missing()) return call.wrong("format takes values by place or by name, not both");
  if (is_named) return format_percent(call, text, arguments[2]);
  const Arguments values = rest_of(arguments[1]);
  HEADWATER_ASSIGN_OR_RETURN(const Value tuple, make_list(call, {values.begin(), values.end()}, ListKind::kTuple));
  return format_percent(call, text, tuple);
}

// Templates that llama.cpp can run use it, where arguments are text; in Python it is an error when it is reached.
Result<Value> from_json_filter(const Call& call, Arguments) {
  return call.unsupported("the filter \"from_json\" is not known here; give arguments as objects");
}

}  // namespace

std::span<const Builtin> filters() {
  static const Builtin kFilters[] = {
      {"abs", {"x"}, 1, abs_filter},
      {"capitalize", {"s"}, 1, case_filter<LetterCase::kCapitalized>},
      {"d", {"value", "default_value", "boolean"}, 1, default_filter},
      {"default", {"value", "default_value", "boolean"}, 1, default_filter},
      {"e", {"s"}, 1, escape_filter},
      {"escape", {"s"}, 1, escape_filter},
      {"float", {"value", "default"}, 1, float_filter},
      {"format", {"value", "*", "**"}, 1, format_filter},
      {"from_json", {"value"}, 1, from_json_filter},
      {"indent", {"s", "width", "first", "blank"}, 1, indent_filter},
      {"int", {"value", "default"}, 1, int_filter},
      {"lower", {"s"}, 1, case_filter<LetterCase::kLower>},
      {"replace", {"s", "old", "new", "count"}, 3, replace_filter},
      {"round", {"value", "precision", "method"}, 1, round_filter},
      {"safe", {"value"}, 1, safe_filter},
      {"string", {"object"}, 1, string_filter},
      {"title", {"s"}, 1, title_filter},
      {"tojson", {"value", "ensure_ascii", "indent", "separators", "sort_keys"}, 1, tojson_filter},
      {"trim", {"value", "chars"}, 1, trim_filter},
      {"upper", {"s"}, 1, case_filter<LetterCase::kUpper>},
  };
  return kFilters;
}

}  // namespace headwater::text::jinja
