#include "text/jinja/token_stream.h"

namespace headwater::text::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "\"}}\"";
    case TokenKind::kBlockEnd:
      return "\"%}\"";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("\"{}\"", token.text);
  }
}

}  // namespace

Status TokenStream::unexpected(std::string_view expected) const {
  return error_at(where(), ErrorCode::kInvalidArgument, "{} stands where {} is expected", describe(current()),
                  expected);
}

Status TokenStream::expect_operator(std::string_view spelling) {
  if (take_operator(spelling)) return {};
  return unexpected(fmt::format("\"{}\"", spelling));
}

Status TokenStream::expect(TokenKind kind, std::string_view description) {
  if (!is(kind)) return unexpected(description);
  take();
  return {};
}

Result<std::string> TokenStream::expect_name() {
  if (!is(TokenKind::kName)) return unexpected("a name");
  return take().text;
}

Status TokenStream::check_depth(uint32_t depth, Position where) const {
  if (depth <= depth_max_) return {};
  return error_at(where, ErrorCode::kExhausted,
                  "the template nests more than {} levels deep; give parts of it names with set or macro", depth_max_);
}

}  // namespace headwater::text::jinja
