#include "text/tokenizer.h"
#include "text/utf8.h"

namespace headwater::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skips_control)
    : tokenizer_(&tokenizer), skips_control_(skips_control) {}

void Detokenizer::append(TokenId id, std::string& out) {
  if (skips_control_ && tokenizer_->is_control(id)) return;
  const std::string_view bytes = tokenizer_->bytes_of(id);
  if (bytes.empty()) return;
  const std::string_view text = has_begun_ ? bytes : tokenizer_->first_bytes_of(id);
  has_begun_ = true;
  for (const char byte : text) append_byte(byte, out);
}

void Detokenizer::append_byte(char byte, std::string& out) {
  pending_[pending_bytes_++] = byte;
  Utf8Character character = first_character({pending_, pending_bytes_});
  if (character.state == Utf8State::kIncomplete) return;
  if (character.state == Utf8State::kInvalid && pending_bytes_ > 1) {
    // The bytes before this one can no longer become a character; this one may begin the next.
    out += kReplacementCharacter;
    pending_[0] = byte;
    pending_bytes_ = 1;
    character = first_character({pending_, 1});
    if (character.state == Utf8State::kIncomplete) return;
  }
  if (character.state == Utf8State::kInvalid) {
    out += kReplacementCharacter;
  } else {
    out.append(pending_, pending_bytes_);
  }
  pending_bytes_ = 0;
}

void Detokenizer::finish(std::string& out) {
  if (pending_bytes_ > 0) out += kReplacementCharacter;
  pending_bytes_ = 0;
}

}  // namespace headwater::text
