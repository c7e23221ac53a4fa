#include <array>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace headwater::text {

Tokenizer Tokenizer::of_bytes() {
  const auto symbols = std::make_shared<std::array<std::string, 256>>();
  TokenizerSpec spec;
  spec.is_byte_level = true;
  spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kByteLevel, .pattern = {}});
  for (unsigned byte = 0; byte < symbols->size(); ++byte) {
    append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), (*symbols)[byte]);
    spec.tokens.push_back((*symbols)[byte]);
    spec.types.push_back(TokenType::kNormal);
  }
  spec.owned = symbols;
  Result<Tokenizer> tokenizer = create(spec);
  check(tokenizer.is_ok(), "a vocabulary of all bytes");
  return std::move(tokenizer).value();
}

}  // namespace headwater::text
