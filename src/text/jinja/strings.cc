#include "text/jinja/strings.h"

#include <algorithm>

#include "text/utf8.h"

namespace headwater::text::jinja {
namespace {

// Searching takes, at worst, a comparison of part at every place.
Status charge_search(const Call& call, const Text& text, const Text& part) {
  return call.budget.step(call.where, text.size() * (1 + part.size() / 64));
}

// Characters [begin, end) of text as a value.
Result<Value> slice_value(const Call& call, const Text& text, size_t begin, size_t end) {
  return make_text(call.where, call.budget, text.slice(begin, end));
}

Result<Value> split_at_white_space(const Call& call, const Text& text) {
  std::vector<Value> parts;
  const std::string_view bytes = text.bytes();
  size_t begin = std::string_view::npos;  // of the current word
  for (size_t at = 0; at <= bytes.size();) {
    const bool is_end = at == bytes.size();
    const Utf8Character character =
        is_end ? Utf8Character{Utf8State::kWhole, 1, ' '} : first_character(bytes.substr(at));
    const bool is_space = is_white_space(character.code_point);
    if (is_space && begin != std::string_view::npos) {
      HEADWATER_ASSIGN_OR_RETURN(Value part, slice_value(call, text, begin, at));
      parts.push_back(std::move(part));
      begin = std::string_view::npos;
    } else if (!is_space && begin == std::string_view::npos) {
      begin = at;
    }
    at += character.bytes;
  }
  return make_list(call.where, call.budget, std::move(parts));
}

}  // namespace

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += first_character(text.substr(at)).bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

Result<Value> strip_text(const Call& call, const Text& text, const Value& set, bool left, bool right) {
  if (!set.is_undefined() && !set.is_none() && set.text() == nullptr) {
    return error_at(call.where, ErrorCode::kInvalidArgument, "the characters to strip are {}, not a string",
                    set.type_name());
  }
  const std::string_view characters = set.text() == nullptr ? std::string_view() : set.text()->bytes();
  HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, text.size() * (1 + characters.size())));
  const Range kept = strip(text.bytes(), set.text() == nullptr ? nullptr : &characters, left, right);
  return slice_value(call, text, kept.begin, kept.end);
}

Result<Value> change_case(const Call& call, const Text& text, bool upper) {
  const auto is_ascii = [](char c) { return (c & 0x80) == 0; };
  if (!std::all_of(text.bytes().begin(), text.bytes().end(), is_ascii)) {
    return error_at(call.where, ErrorCode::kUnsupported, "only ASCII text changes case here");
  }
  return make_text(call.where, call.budget, text.with_ascii_case(upper));
}

Result<Value> replace_text(const Call& call, const Text& text, const Value& from, const Value& to) {
  HEADWATER_ASSIGN_OR_RETURN(const Text old_part, to_text(call.where, from));
  HEADWATER_ASSIGN_OR_RETURN(const Text new_part, to_text(call.where, to));
  if (old_part.empty()) return error_at(call.where, ErrorCode::kUnsupported, "an empty string cannot be replaced here");
  HEADWATER_RETURN_IF_ERROR(charge_search(call, text, old_part));
  Text result;
  size_t begin = 0;
  for (size_t found; (found = text.bytes().find(old_part.bytes(), begin)) != std::string::npos;) {
    HEADWATER_RETURN_IF_ERROR(call.budget.build(call.where, found - begin + new_part.footprint()));
    result.append(text, begin, found);
    result.append(new_part);
    begin = found + old_part.size();
  }
  HEADWATER_RETURN_IF_ERROR(call.budget.build(call.where, text.size() - begin));
  result.append(text, begin, text.size());
  return Value::of_text(std::move(result));
}

Result<Value> split_text(const Call& call, const Text& text, const Value& separator) {
  if (separator.is_undefined() || separator.is_none()) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, text.size()));
    return split_at_white_space(call, text);
  }
  if (separator.text() == nullptr || separator.text()->empty()) {
    return error_at(call.where, ErrorCode::kInvalidArgument, "split() needs a separator that is not empty");
  }
  HEADWATER_RETURN_IF_ERROR(charge_search(call, text, *separator.text()));
  std::vector<Value> parts;
  for (size_t begin = 0; begin != std::string::npos;) {
    const size_t found = text.bytes().find(separator.text()->bytes(), begin);
    HEADWATER_ASSIGN_OR_RETURN(Value part, slice_value(call, text, begin, std::min(found, text.size())));
    parts.push_back(std::move(part));
    begin = found == std::string::npos ? found : found + separator.text()->size();
  }
  return make_list(call.where, call.budget, std::move(parts));
}

Result<bool> contains_text(const Call& call, const Text& text, const Text& part) {
  HEADWATER_RETURN_IF_ERROR(charge_search(call, text, part));
  return text.bytes().find(part.bytes()) != std::string::npos;
}

}  // namespace headwater::text::jinja
