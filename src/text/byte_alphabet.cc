#include "text/byte_alphabet.h"

#include <array>
#include <charconv>

#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kFirstExtra = 0x100;
constexpr size_t kExtras = 68;

struct Alphabet {
  std::array<char32_t, 256> symbols{};
  std::array<uint8_t, kExtras> extra_bytes{};

  constexpr Alphabet() {
    size_t extras = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (stands_for_itself(byte)) {
        symbols[byte] = byte;
      } else {
        extra_bytes[extras] = static_cast<uint8_t>(byte);
        symbols[byte] = static_cast<char32_t>(kFirstExtra + extras++);
      }
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t symbol_of_byte(uint8_t byte) {
  return kAlphabet.symbols[byte];
}

std::optional<uint8_t> byte_of_symbol(char32_t symbol) {
  if (symbol < kFirstExtra) {
    if (!stands_for_itself(symbol)) return std::nullopt;
    return static_cast<uint8_t>(symbol);
  }
  if (symbol >= kFirstExtra + kExtras) return std::nullopt;
  return kAlphabet.extra_bytes[symbol - kFirstExtra];
}

bool is_in_byte_alphabet(std::string_view spelling) {
  for (std::string_view rest = spelling; !rest.empty();) {
    const Utf8Character character = first_character(rest);
    if (character.state != Utf8State::kWhole || !byte_of_symbol(character.code_point)) return false;
    rest.remove_prefix(character.bytes);
  }
  return true;
}

std::string bytes_of_spelling(std::string_view spelling) {
  if (!is_in_byte_alphabet(spelling)) return std::string(spelling);
  std::string bytes;
  for (std::string_view rest = spelling; !rest.empty();) {
    const Utf8Character character = first_character(rest);
    bytes += static_cast<char>(*byte_of_symbol(character.code_point));
    rest.remove_prefix(character.bytes);
  }
  return bytes;
}

std::optional<uint8_t> byte_of_token(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || !spelling.ends_with('>')) return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(&spelling[3], &spelling[5], byte, 16);
  return error == std::errc() && end == &spelling[5] ? std::optional(byte) : std::nullopt;
}

}  // namespace headwater::text
