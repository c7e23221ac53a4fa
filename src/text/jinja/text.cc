#include "text/jinja/text.h"

#include <algorithm>

#include "core/core.h"

namespace headwater::text::jinja {
namespace {

bool contains_character(std::string_view set, char32_t code_point) {
  while (!set.empty()) {
    const Utf8Character character = first_character(set);
    if (character.code_point == code_point) return true;
    set.remove_prefix(character.bytes);
  }
  return false;
}

}  // namespace

void Text::append(std::string_view valid_utf8, bool owned) {
  bytes_ += valid_utf8;
  mark(owned);
}

void Text::mark(bool owned) {
  if (bytes_.size() == (runs_.empty() ? 0 : runs_.back().end)) return;
  if (!runs_.empty() && runs_.back().owned == owned) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), owned});
  }
}

std::vector<Text::Run>::const_iterator Text::run_of(size_t at) const {
  return std::upper_bound(runs_.begin(), runs_.end(), at, [](size_t byte, const Run& run) { return byte < run.end; });
}

bool Text::is_owned(size_t at) const {
  check(at < bytes_.size(), "a byte of a text is behind its end");
  return run_of(at)->owned;
}

void Text::append(const Text& other, size_t begin, size_t end) {
  auto run = other.run_of(begin);
  for (size_t at = begin; at < end; ++run) {
    const size_t stop = std::min(end, run->end);
    append(std::string_view(other.bytes_).substr(at, stop - at), run->owned);
    at = stop;
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  result.is_safe_ = is_safe_;
  return result;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

Range strip(std::string_view text, const std::string_view* set, bool left, bool right) {
  const auto goes = [&](char32_t c) { return set == nullptr ? is_white_space(c) : contains_character(*set, c); };
  Range kept{0, text.size()};
  while (left && kept.begin < kept.end) {
    const Utf8Character character = first_character(text.substr(kept.begin));
    if (!goes(character.code_point)) break;
    kept.begin += character.bytes;
  }
  while (right && kept.begin < kept.end) {
    size_t at = kept.end - 1;
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!goes(first_character(text.substr(at)).code_point)) break;
    kept.end = at;
  }
  return kept;
}

}  // namespace headwater::text::jinja
