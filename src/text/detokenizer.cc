#include "text/tokenizer.h"
#include "text/utf8.h"

namespace headwater::text {

void Detokenizer::append(TokenId id, std::string& out) {
  if (tokenizer_->is_control(id)) return;
  for (const char byte : tokenizer_->bytes_of(id)) {
    pending_[pending_bytes_++] = byte;
    Utf8Character character = first_character({pending_, pending_bytes_});
    if (character.state == Utf8State::kIncomplete) continue;
    if (character.state == Utf8State::kInvalid && pending_bytes_ > 1) {
      // The bytes before this one can no longer become a character; this one may begin the next.
      out += kReplacementCharacter;
      pending_[0] = byte;
      pending_bytes_ = 1;
      character = first_character({pending_, 1});
      if (character.state == Utf8State::kIncomplete) continue;
    }
    if (character.state == Utf8State::kInvalid) {
      out += kReplacementCharacter;
    } else {
      out.append(pending_, pending_bytes_);
    }
    pending_bytes_ = 0;
  }
}

void Detokenizer::finish(std::string& out) {
  if (pending_bytes_ > 0) out += kReplacementCharacter;
  pending_bytes_ = 0;
}

}  // namespace headwater::text
