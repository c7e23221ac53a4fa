#include "text/token_contents.h"

#include <algorithm>

namespace headwater::text {
namespace {

std::string with_spaces(std::string_view spelling, std::string_view mark) {
  std::string out;
  for (size_t i = 0; i < spelling.size();) {
    const bool is_mark = !mark.empty() && spelling.substr(i).starts_with(mark);
    out += is_mark ? ' ' : spelling[i];
    i += is_mark ? mark.size() : 1;
  }
  return out;
}

}  // namespace

void TokenContents::add(std::string_view content) {
  *block_ += content;
  bytes_max_ = std::max(bytes_max_, content.size());
  offsets_.push_back(block_->size());
}

TokenContents TokenContents::to_encode(const TokenizerSpec& spec) {
  TokenContents contents;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.is_ordinary(id) || (spec.is_byte_level && !is_in_byte_alphabet(spec.tokens[id]))) {
      contents.add({});
    } else {
      contents.add(spec.is_byte_level ? bytes_of_spelling(spec.tokens[id]) : std::string(spec.tokens[id]));
    }
  }
  return contents;
}

TokenContents TokenContents::to_decode(const TokenizerSpec& spec,
                                       const std::unordered_map<TokenId, std::string>& renamed) {
  TokenContents contents;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const auto other = renamed.find(static_cast<TokenId>(id));
    const std::string_view spelling = other == renamed.end() ? spec.tokens[id] : other->second;
    const auto byte = spec.types[id] == TokenType::kByte ? byte_of_token(spelling) : std::nullopt;
    if (spec.types[id] == TokenType::kUnused) {
      contents.add({});
    } else if (byte) {
      contents.add(std::string(1, static_cast<char>(*byte)));
    } else if (spec.types[id] == TokenType::kControl) {
      contents.add(spelling);
    } else if (spec.is_byte_level) {
      contents.add(spec.types[id] == TokenType::kUserDefined ? std::string(spelling) : bytes_of_spelling(spelling));
    } else {
      contents.add(with_spaces(spelling, spec.space_mark));
    }
  }
  return contents;
}

std::vector<std::string_view> TokenContents::views() const {
  std::vector<std::string_view> views;
  for (size_t id = 0; id + 1 < offsets_.size(); ++id) views.push_back(of(static_cast<TokenId>(id)));
  return views;
}

}  // namespace headwater::text
