#include "text/utf8.h"

#include <cstring>

namespace headwater::text {
namespace {

struct Lead {
  uint8_t bytes = 0;  // of the whole character; 0: not a lead byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte_at(0));
  if (lead.bytes == 0) return {Utf8State::kInvalid, 1, 0};
  if (lead.bytes == 1) return {Utf8State::kWhole, 1, byte_at(0)};
  char32_t code_point = byte_at(0) & (0x7Fu >> lead.bytes);
  for (uint8_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8State::kIncomplete, i, 0};
    const uint8_t byte_min = i == 1 ? lead.second_min : 0x80;
    const uint8_t byte_max = i == 1 ? lead.second_max : 0xBF;
    if (byte_at(i) < byte_min || byte_at(i) > byte_max) return {Utf8State::kInvalid, i, 0};
    code_point = code_point << 6 | (byte_at(i) & 0x3Fu);
  }
  return {Utf8State::kWhole, lead.bytes, code_point};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    out += tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    out += tail(6);
    out += tail(0);
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    out += tail(12);
    out += tail(6);
    out += tail(0);
  }
}

size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

bool is_valid_utf8(std::string_view text) {
  while (true) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const Utf8Character character = first_character(text);
    if (character.state != Utf8State::kWhole) return false;
    text.remove_prefix(character.bytes);
  }
}

void append_valid_utf8(std::string_view text, std::string& out) {
  size_t begin = 0;  // of the valid run that is not yet copied
  for (size_t at = 0; (at += ascii_prefix(text.substr(at))) < text.size();) {
    const Utf8Character character = first_character(text.substr(at));
    if (character.state != Utf8State::kWhole) {
      out.append(text, begin, at - begin);
      out += kReplacementCharacter;
      begin = at + character.bytes;
    }
    at += character.bytes;
  }
  out.append(text, begin);
}

size_t count_characters(std::string_view valid_utf8) {
  size_t count = 0;
  for (const char c : valid_utf8) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace headwater::text
