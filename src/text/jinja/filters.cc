#include "text/jinja/filters.h"

#include <charconv>
#include <cmath>

#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace headwater::text::jinja {
namespace {

using Arguments = std::span<const Value>;

Result<int64_t> truncated(const Call& call, double value) {
  if (value >= -0x1p63 && value < 0x1p63) return static_cast<int64_t>(value);
  return error_at(call.where, ErrorCode::kUnsupported, "the integer does not fit 64 bits");
}

// Python's int(text), then int(float(text)), then the default.
Result<Value> parse_int(const Call& call, std::string_view text, const Value& otherwise) {
  const Range kept = strip(text, nullptr, true, true);
  text = text.substr(kept.begin, kept.end - kept.begin);
  for (const char c : text) {
    if (c == '_' || (c & 0x80) != 0) {
      return error_at(call.where, ErrorCode::kUnsupported, "int of \"_\" or of digits outside ASCII");
    }
  }
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  const auto as_integer = std::from_chars(text.data(), end, integer);
  if (as_integer.ptr == end && as_integer.ec == std::errc::result_out_of_range) {
    return error_at(call.where, ErrorCode::kUnsupported, "the integer does not fit 64 bits");
  }
  if (as_integer.ptr == end && as_integer.ec == std::errc()) return Value::of_int(integer);
  double number = 0;
  const auto as_float = std::from_chars(text.data(), end, number);
  if (as_float.ptr != end || as_float.ec != std::errc() || !std::isfinite(number)) return otherwise;
  HEADWATER_ASSIGN_OR_RETURN(integer, truncated(call, number));
  return Value::of_int(integer);
}

Result<Value> end_of(const Call& call, const Value& value, bool first) {
  if (const Text* text = value.text(); text != nullptr && !text->empty()) {
    const std::string_view bytes = text->bytes();
    size_t begin = first ? 0 : bytes.size() - 1;
    while ((static_cast<uint8_t>(bytes[begin]) & 0xC0) == 0x80) --begin;
    return make_text(call.where, call.budget, text->slice(begin, begin + first_character(bytes.substr(begin)).bytes));
  }
  if (value.list() != nullptr && !value.list()->items.empty()) {
    return first ? value.list()->items.front() : value.list()->items.back();
  }
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> items, items_of(call, value));
  if (items.empty()) return Value();
  return first ? items.front() : items.back();
}

}  // namespace

Result<std::vector<Value>> items_of(const Call& call, const Value& value) {
  std::vector<Value> items;
  if (value.list() != nullptr) {
    items = value.list()->items;
  } else if (value.dict() != nullptr) {
    for (const auto& entry : value.dict()->entries) items.push_back(Value::of_text(entry.first));
  } else if (const Text* text = value.text()) {
    HEADWATER_RETURN_IF_ERROR(call.budget.build(call.where, text->size() * sizeof(Text)));
    const std::vector<size_t> offsets = character_offsets(text->bytes());
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(Value::of_text(text->slice(offsets[i], offsets[i + 1])));
    }
  } else if (!value.is_undefined()) {
    return error_at(call.where, ErrorCode::kInvalidArgument, "{} has no items", value.type_name());
  }
  HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, items.size() * sizeof(Value)));
  return items;
}

Result<Value> default_filter(const Call&, Arguments arguments) {
  const bool applies = arguments[0].is_undefined() || (arguments[2].truth() && !arguments[0].truth());
  if (!applies) return arguments[0];
  return arguments[1].is_undefined() ? Value::of_text(Text()) : arguments[1];
}

Result<Value> first_filter(const Call& call, Arguments arguments) {
  return end_of(call, arguments[0], true);
}
Result<Value> last_filter(const Call& call, Arguments arguments) {
  return end_of(call, arguments[0], false);
}

Result<Value> int_filter(const Call& call, Arguments arguments) {
  const Value& value = arguments[0];
  const Value otherwise = arguments[1].is_undefined() ? Value::of_int(0) : arguments[1];
  if (value.is_undefined()) return error_at(call.where, ErrorCode::kInvalidArgument, "int of an undefined value");
  if (value.text() != nullptr) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, value.text()->size()));
    return parse_int(call, value.text()->bytes(), otherwise);
  }
  const auto number = number_of(value);
  if (!number) return otherwise;
  if (!number->is_float) return Value::of_int(number->integer);
  if (!std::isfinite(number->floating)) return otherwise;
  HEADWATER_ASSIGN_OR_RETURN(const int64_t integer, truncated(call, number->floating));
  return Value::of_int(integer);
}

Result<Value> join_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> items, items_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text separator, to_text(call.where, arguments[1]));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const Text item, to_text(call.where, items[i]));
    HEADWATER_RETURN_IF_ERROR(call.budget.build(call.where, item.footprint() + separator.footprint()));
    if (i > 0) result.append(separator);
    result.append(item);
  }
  return Value::of_text(std::move(result));
}

Result<Value> length_filter(const Call& call, Arguments arguments) {
  const Value& value = arguments[0];
  size_t length = 0;
  if (value.text() != nullptr) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, value.text()->size()));
    length = count_characters(value.text()->bytes());
  } else if (value.list() != nullptr) {
    length = value.list()->items.size();
  } else if (value.dict() != nullptr) {
    length = value.dict()->entries.size();
  } else if (!value.is_undefined()) {
    return error_at(call.where, ErrorCode::kInvalidArgument, "{} has no length", value.type_name());
  }
  return Value::of_int(static_cast<int64_t>(length));
}

Result<Value> list_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> items, items_of(call, arguments[0]));
  return make_list(call.where, call.budget, std::move(items));
}

Result<Value> string_filter(const Call& call, Arguments arguments) {
  if (arguments[0].text() != nullptr) return arguments[0];
  HEADWATER_ASSIGN_OR_RETURN(Text text, to_text(call.where, arguments[0]));
  return make_text(call.where, call.budget, std::move(text));
}

Result<Value> lower_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call.where, arguments[0]));
  return change_case(call, text, false);
}

Result<Value> upper_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call.where, arguments[0]));
  return change_case(call, text, true);
}

Result<Value> replace_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call.where, arguments[0]));
  return replace_text(call, text, arguments[1], arguments[2]);
}

Result<Value> trim_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call.where, arguments[0]));
  return strip_text(call, text, arguments[1], true, true);
}

}  // namespace headwater::text::jinja
