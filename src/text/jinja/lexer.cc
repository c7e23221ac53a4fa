#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/string_literal.h"
#include "text/jinja/text.h"
#include "text/utf8.h"

namespace headwater::text::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

std::string normalize(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, uint32_t tokens_max) : source_(normalize(source)), tokens_max_(tokens_max) {
    for (size_t i = 0; i < source_.size(); ++i) {
      if (source_[i] == '\n') line_begins_.push_back(i + 1);
    }
  }

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      const bool is_variable = tag + 1 < source_.size() && source_[tag + 1] == '{';
      add_data(tag, is_variable);
      at_ = tag;
      if (tag == source_.size()) break;
      if (source_[tag + 1] == '#') {
        HEADWATER_RETURN_IF_ERROR(skip_comment());
      } else if (const size_t raw = is_variable ? 0 : end_of_block(tag, "raw")) {
        HEADWATER_RETURN_IF_ERROR(read_raw(raw));
      } else {
        HEADWATER_RETURN_IF_ERROR(read_tag(is_variable));
      }
    }
    add(TokenKind::kEnd, source_.size(), "");
    return std::move(tokens_);
  }

 private:
  bool has(size_t at, std::string_view text) const { return std::string_view(source_).substr(at).starts_with(text); }
  char peek(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }

  Position position(size_t at) const {
    const auto next = std::upper_bound(line_begins_.begin(), line_begins_.end(), at);
    const auto line = static_cast<uint32_t>(next - line_begins_.begin());
    return {line, static_cast<uint32_t>(at - line_begins_[line - 1] + 1)};
  }

  void add(TokenKind kind, size_t at, std::string text) { tokens_.push_back({kind, position(at), std::move(text)}); }

  size_t next_tag() const {
    size_t at = at_;
    while ((at = source_.find('{', at)) != std::string::npos) {
      const char second = peek(at + 1);
      if (second == '{' || second == '%' || second == '#') return at;
      ++at;
    }
    return source_.size();
  }

  // The text between at_ and a tag, without what the tag's sign or the block rules take from its end.
  void add_data(size_t tag, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = peek(tag + 2);
    if (tag < source_.size() && sign == '-') {
      text = text.substr(0, strip(text, nullptr, false, true).end);
    } else if (tag < source_.size() && sign != '+' && !is_variable) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      const Range left = strip(text.substr(line), nullptr, true, false);
      if ((line > 0 || line_starting_) && left.begin == left.end) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kData, at_, std::string(text));
  }

  void skip_white_space() { at_ += strip(std::string_view(source_).substr(at_), nullptr, true, false).begin; }

  // Behind the end of a tag: sign is the character before it.
  void finish_tag(char sign, bool is_variable) {
    if (sign == '-') {
      skip_white_space();
    } else if (sign != '+' && !is_variable && peek(at_) == '\n') {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  // Where the block of one word that begins at `tag` ends; 0 where another block stands there.
  size_t end_of_block(size_t tag, std::string_view word) const {
    size_t at = tag + 2 + (peek(tag + 2) == '-' || peek(tag + 2) == '+');
    const auto skip = [&] { at += strip(std::string_view(source_).substr(at), nullptr, true, false).begin; };
    skip();
    if (!has(at, word) || is_name(peek(at + word.size()))) return 0;
    at += word.size();
    skip();
    at += peek(at) == '-' || peek(at) == '+';
    return has(at, "%}") ? at + 2 : 0;
  }

  // {% raw %} text {% endraw %}; at_ stands at its beginning, which ends at `end`.
  Status read_raw(size_t end) {
    const size_t begin = at_;
    at_ = end;
    if (source_[end - 3] == '-') skip_white_space();  // otherwise even a newline stays, as in jinja2
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const size_t behind = end_of_block(tag, "endraw");
      if (behind == 0) continue;
      add_data(tag, false);
      at_ = behind;
      finish_tag(source_[behind - 3], false);
      return {};
    }
    return error_at(position(begin), ErrorCode::kInvalidArgument, "the raw block has no end");
  }

  Status skip_comment() {
    const size_t begin = at_ + 2 + (peek(at_ + 2) == '-' || peek(at_ + 2) == '+');
    const size_t end = source_.find("#}", begin);
    if (end == std::string::npos) {
      return error_at(position(at_), ErrorCode::kInvalidArgument, "the comment has no end");
    }
    at_ = end + 2;
    finish_tag(end > begin ? source_[end - 1] : '\0', false);
    return {};
  }

  Status read_tag(bool is_variable) {
    const size_t begin = at_;
    const std::string_view close = is_variable ? "}}" : "%}";
    add(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, at_, "");
    at_ += 2 + (peek(at_ + 2) == '-' || peek(at_ + 2) == '+');
    brackets_.clear();
    while (true) {
      skip_white_space();
      if (at_ == source_.size()) {
        return error_at(position(begin), ErrorCode::kInvalidArgument, "the tag has no end; \"{}\" is missing", close);
      }
      const bool has_sign = peek(at_) == '-' || (peek(at_) == '+' && !is_variable);
      if (brackets_.empty() && has(at_ + has_sign, close)) {
        add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, at_, "");
        const char sign = source_[at_];
        at_ += has_sign + close.size();
        finish_tag(sign, is_variable);
        return {};
      }
      HEADWATER_RETURN_IF_ERROR(read_token());
      if (tokens_.size() > tokens_max_) {  // looked at in tags alone: no two stretches of text follow each other
        return error_at(position(at_), ErrorCode::kExhausted, "it has more than {} words and signs; give a shorter one",
                        tokens_max_);
      }
    }
  }

  Status read_token() {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return read_string(c);
    if (is_digit(c)) return read_number();
    if (!is_name_start(c)) return read_operator();
    const size_t begin = at_;
    while (is_name(peek(at_))) ++at_;
    add(TokenKind::kName, begin, source_.substr(begin, at_ - begin));
    return {};
  }

  Status read_string(char quote) {
    const size_t begin = at_++;
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2 : 1;
    if (at_ >= source_.size()) {
      return error_at(position(begin), ErrorCode::kInvalidArgument, "the string has no closing {}", quote);
    }
    const std::string_view body = std::string_view(source_).substr(begin + 1, at_ - begin - 1);
    HEADWATER_ASSIGN_OR_RETURN(std::string value, unescape(body, position(begin)));
    ++at_;
    add(TokenKind::kString, begin, std::move(value));
    return {};
  }

  void skip_digits() {
    while (is_digit(peek(at_))) ++at_;
  }

  Status read_number() {
    const size_t begin = at_;
    bool is_float = false;
    skip_digits();
    const bool follows_dot =
        !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
    if (!follows_dot && peek(at_) == '.' && is_digit(peek(at_ + 1))) {
      is_float = true;
      ++at_;
      skip_digits();
    }
    const size_t sign = peek(at_ + 1) == '+' || peek(at_ + 1) == '-';
    if (!follows_dot && (peek(at_) == 'e' || peek(at_) == 'E') && is_digit(peek(at_ + 1 + sign))) {
      is_float = true;
      at_ += 1 + sign;
      skip_digits();
    }
    const bool leading_zero = !is_float && source_[begin] == '0' && at_ > begin + 1;
    if (is_name(peek(at_)) || leading_zero) {
      return error_at(position(begin), ErrorCode::kUnsupported,
                      "numbers are decimal here, without \"_\" or leading zeros");
    }
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, begin, source_.substr(begin, at_ - begin));
    return {};
  }

  Status read_operator() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view spelling : kOperators) {
      if (!has(at_, spelling)) continue;
      HEADWATER_RETURN_IF_ERROR(balance(spelling[0]));
      add(TokenKind::kOperator, at_, std::string(spelling));
      at_ += spelling.size();
      return {};
    }
    const Utf8Character character = first_character(std::string_view(source_).substr(at_));
    return error_at(position(at_), ErrorCode::kInvalidArgument, "unexpected character \"{}\"",
                    source_.substr(at_, character.bytes));
  }

  Status balance(char c) {
    static constexpr std::string_view kOpen = "([{";
    static constexpr std::string_view kClose = ")]}";
    if (kOpen.find(c) != std::string_view::npos) brackets_ += kClose[kOpen.find(c)];
    if (kClose.find(c) == std::string_view::npos) return {};
    if (brackets_.empty() || brackets_.back() != c) {
      return error_at(position(at_), ErrorCode::kInvalidArgument, "unexpected \"{}\"", c);
    }
    brackets_.pop_back();
    return {};
  }

  std::string source_;
  std::vector<size_t> line_begins_{0};
  size_t at_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  // the closing brackets that are due, innermost last
  const uint32_t tokens_max_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, uint32_t tokens_max) {
  return Lexer(source, tokens_max).run();
}

}  // namespace headwater::text::jinja
