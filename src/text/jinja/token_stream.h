// The tokens of a template, with the questions a parser asks, and the depth that it has reached.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"

namespace headwater::text::jinja {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, uint32_t depth_max) : tokens_(std::move(tokens)), depth_max_(depth_max) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Position where() const { return current().where; }
  const Token& take() {
    const Token& token = current();
    if (token.kind != TokenKind::kEnd) ++at_;
    return token;
  }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view spelling) const { return is_operator(current(), spelling); }
  bool is_name(std::string_view name) const { return is_name(current(), name); }
  static bool is_operator(const Token& token, std::string_view spelling) {
    return token.kind == TokenKind::kOperator && token.text == spelling;
  }
  static bool is_name(const Token& token, std::string_view name) {
    return token.kind == TokenKind::kName && token.text == name;
  }
  bool take_operator(std::string_view spelling) { return is_operator(spelling) && (++at_, true); }
  bool take_name(std::string_view name) { return is_name(name) && (++at_, true); }

  Status expect_operator(std::string_view spelling);
  Status expect(TokenKind kind, std::string_view description);
  Result<std::string> expect_name();
  Status unexpected(std::string_view expected) const;  // kInvalidArgument at the current token

  // A level deeper, until the guard dies; ask status() first.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) { ++stream_.depth_; }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Status status() const { return stream_.check_depth(stream_.depth_, stream_.where()); }

   private:
    TokenStream& stream_;
  };
  Status check_depth(uint32_t depth, Position where) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  uint32_t depth_max_;
};

}  // namespace headwater::text::jinja
