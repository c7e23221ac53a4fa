// Cuts a template into tokens. White space around tags follows jinja2 with trim_blocks and lstrip_blocks: the newline
// behind a block or comment and the blanks before it on its line go; "-" takes all white space on its side, "+" none.
// Newlines become "\n" and one newline at the end of the source is dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/position.h"

namespace headwater::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the source; always the last token
};

struct Token {
  TokenKind kind;
  Position where;
  std::string text;  // the data, name, operator or number as written; a string's value
};

// kInvalidArgument for text that is no template, kUnsupported for spellings that jinja2 knows and we do not, kExhausted beyond
// tokens_max.
Result<std::vector<Token>> tokenize(std::string_view source, uint32_t tokens_max);

}  // namespace headwater::text::jinja
