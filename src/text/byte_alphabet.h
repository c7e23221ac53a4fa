// GPT-2's byte alphabet: every byte is written as one printable character, so that vocabularies and merges are text.
// Printable Latin-1 bytes stand for themselves; the other 68 follow at U+0100 in byte order (space is U+0120, "Ġ").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headwater::text {

char32_t symbol_of_byte(uint8_t byte);
std::optional<uint8_t> byte_of_symbol(char32_t symbol);
// The bytes that a token's spelling stands for; the spelling itself where a character is outside the alphabet.
std::string bytes_of_spelling(std::string_view spelling);
bool is_in_byte_alphabet(std::string_view spelling);
// The byte that a token spelled "<0x0A>" stands for, as SentencePiece names them.
std::optional<uint8_t> byte_of_token(std::string_view spelling);

}  // namespace headwater::text
