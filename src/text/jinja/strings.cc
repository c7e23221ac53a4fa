#include "text/jinja/strings.h"

#include <algorithm>

namespace headwater::text::jinja {
namespace {

// Bytes [begin, end) of text as a value.
Result<Value> slice_value(const Call& call, const Text& text, Range range) {
  return make_text(call, text.slice(range.begin, range.end));
}

// The words of a text; after count_max cuts the rest of the text is one word, with the white space at its far end.
std::vector<Range> words(std::string_view bytes, int64_t count_max, bool from_right) {
  std::vector<Range> found;
  constexpr size_t kNone = std::string_view::npos;
  size_t begin = kNone;  // of the current word
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Character character = first_character(bytes.substr(at));
    const bool is_space = is_white_space(character.code_point);
    if (is_space && begin != kNone) found.push_back({begin, at});
    begin = is_space ? kNone : std::min(begin, at);
    at += character.bytes;
  }
  if (begin != kNone) found.push_back({begin, bytes.size()});
  if (count_max < 0 || found.size() <= static_cast<size_t>(count_max)) return found;
  const auto cuts = static_cast<size_t>(count_max);
  if (from_right) {
    const size_t joined = found.size() - cuts;  // words that stay together, in front
    found[joined - 1].begin = 0;
    found.erase(found.begin(), found.begin() + static_cast<ptrdiff_t>(joined) - 1);
  } else {
    found[cuts].end = bytes.size();
    found.resize(cuts + 1);
  }
  return found;
}

std::vector<Range> between(std::string_view bytes, std::string_view separator, int64_t count_max, bool from_right) {
  std::vector<Range> found;
  size_t begin = 0;
  size_t end = bytes.size();
  while (count_max-- != 0) {
    if (from_right && end < separator.size()) break;
    const size_t at = from_right ? bytes.substr(0, end).rfind(separator) : bytes.find(separator, begin);
    if (at == std::string_view::npos) break;
    found.push_back(from_right ? Range{at + separator.size(), end} : Range{begin, at});
    (from_right ? end : begin) = from_right ? at : at + separator.size();
  }
  found.push_back({begin, end});
  if (from_right) std::reverse(found.begin(), found.end());
  return found;
}

Result<Value> list_of_ranges(const Call& call, const Text& text, const std::vector<Range>& ranges) {
  std::vector<Value> parts;
  for (const Range& range : ranges) {
    HEADWATER_ASSIGN_OR_RETURN(Value part, slice_value(call, text, range));
    parts.push_back(std::move(part));
  }
  return make_list(call, std::move(parts));
}

// Before each character and behind the last: what replacing an empty string does.
Result<Value> insert_between(const Call& call, const Text& text, const Text& inserted, int64_t count_max) {
  HEADWATER_RETURN_IF_ERROR(call.rewrite(text.size()));
  const std::vector<size_t> offsets = character_offsets(text.bytes());
  Text result;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (count_max != 0) {
      HEADWATER_RETURN_IF_ERROR(call.build(inserted.footprint()));
      HEADWATER_RETURN_IF_ERROR(call.rewrite(inserted.size()));
      result.append(inserted);
      --count_max;
    }
    if (i + 1 < offsets.size()) result.append(text, offsets[i], offsets[i + 1]);
  }
  return make_text(call, std::move(result));
}

}  // namespace

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += first_character(text.substr(at)).bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

Status charge_search(const Call& call, const Text& text, const Text& part, bool from_right) {
  if (from_right) HEADWATER_RETURN_IF_ERROR(call.rewrite(text.size()));  // byte by byte
  return call.step(text.size() * (1 + part.size() / 64));
}

Result<Value> strip_text(const Call& call, const Text& text, const Value& set, bool left, bool right) {
  if (!set.is_missing() && !set.is_none() && set.text() == nullptr) {
    return call.wrong("the characters to strip are {}, not a string", set.type_name());
  }
  const std::string_view characters = set.text() == nullptr ? std::string_view() : set.text()->bytes();
  HEADWATER_RETURN_IF_ERROR(call.step(text.size() * (1 + characters.size())));
  return slice_value(call, text, strip(text.bytes(), set.text() == nullptr ? nullptr : &characters, left, right));
}

Result<Value> replace_text(const Call& call, const Text& text, const Text& from, const Text& to, int64_t count_max) {
  if (from.empty()) return insert_between(call, text, to, count_max);
  HEADWATER_RETURN_IF_ERROR(charge_search(call, text, from));
  Text result;
  size_t begin = 0;
  for (size_t found; count_max != 0 && (found = text.bytes().find(from.bytes(), begin)) != std::string::npos;) {
    HEADWATER_RETURN_IF_ERROR(call.build(found - begin + to.footprint()));
    result.append(text, begin, found);
    result.append(to);
    begin = found + from.size();
    --count_max;
  }
  HEADWATER_RETURN_IF_ERROR(call.build(text.size() - begin));
  result.append(text, begin, text.size());
  return Value::of_text(std::move(result));
}

Result<Value> split_text(const Call& call, const Text& text, const Value& separator, int64_t count_max,
                         bool from_right) {
  if (separator.is_missing() || separator.is_none()) {
    HEADWATER_RETURN_IF_ERROR(call.step(text.size()));
    return list_of_ranges(call, text, words(text.bytes(), count_max, from_right));
  }
  if (separator.text() == nullptr || separator.text()->empty()) {
    return call.wrong("split() needs a separator that is not empty");
  }
  HEADWATER_RETURN_IF_ERROR(charge_search(call, text, *separator.text(), from_right));
  return list_of_ranges(call, text, between(text.bytes(), separator.text()->bytes(), count_max, from_right));
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = first_character(text.substr(at));
    const char32_t c = character.code_point;
    const bool is_end = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    const size_t next = at + character.bytes + (text.substr(at).starts_with("\r\n") ? 1 : 0);
    if (is_end) {
      lines.push_back({begin, at, next});
      begin = next;
    }
    at = is_end ? next : at + character.bytes;
  }
  if (begin < text.size()) lines.push_back({begin, text.size(), text.size()});
  return lines;
}

Result<Value> split_lines(const Call& call, const Text& text, bool keep_ends) {
  HEADWATER_RETURN_IF_ERROR(call.step(text.size()));
  std::vector<Range> ranges;
  for (const Line& line : lines_of(text.bytes())) ranges.push_back({line.begin, keep_ends ? line.next : line.end});
  return list_of_ranges(call, text, ranges);
}

Result<bool> contains_text(const Call& call, const Text& text, const Text& part) {
  HEADWATER_RETURN_IF_ERROR(charge_search(call, text, part));
  return text.bytes().find(part.bytes()) != std::string::npos;
}

}  // namespace headwater::text::jinja
