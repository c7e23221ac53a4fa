#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "core/shown.h"

namespace headwater::text {
namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kExpressionBytesMax = 64 * 1024;

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// What stands for an escape in PCRE2; empty when the escape is not known to mean the same. is_word_class: inside [...].
std::string translate_escape(char escaped, bool in_class) {
  if (escaped == 's') return in_class ? R"(\t-\r\x{85}\p{Z})" : R"([\t-\r\x{85}\p{Z}])";
  if (escaped == 'S') return in_class ? R"(\P{White_Space})" : R"([^\t-\r\x{85}\p{Z}])";
  if (escaped == 'w' && in_class) return R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
  if (escaped == 'w') return R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";
  if (escaped == 'W' && !in_class) return R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";
  if (is_letter_or_digit(escaped) && std::string_view("dDpPrntfx").find(escaped) == std::string_view::npos) return {};
  return {'\\', escaped};
}

// PCRE2 takes the name of a script for its extensions too, by which U+3001 would be Han; categories have one letter or two.
std::string translate_property(std::string_view braced) {
  static constexpr std::string_view kBinary[] = {"Any",
                                                 "Alphabetic",
                                                 "Lowercase",
                                                 "Uppercase",
                                                 "Emoji",
                                                 "Ideographic",
                                                 "White_Space",
                                                 "Emoji_Presentation",
                                                 "ID_Start",
                                                 "ID_Continue",
                                                 "Extended_Pictographic"};
  const size_t begin = braced.starts_with("{^") ? 2 : 1;
  const std::string_view name = braced.substr(begin, braced.size() - begin - 1);
  const bool is_script =
      name.size() > 2 && std::find(std::begin(kBinary), std::end(kBinary), name) == std::end(kBinary);
  return fmt::format("{}{}{}}}", braced.substr(0, begin), is_script ? "sc:" : "", name);
}

// (?: (?= (?! (?> (?<= (?<! (?i: (?i) and their like; the rest differs between the two dialects.
bool is_known_group(std::string_view after_question_mark) {
  for (const std::string_view known : {":", "=", "!", ">", "<=", "<!", "i:", "i)", "-i:", "-i)"}) {
    if (after_question_mark.starts_with(known)) return true;
  }
  return false;
}

Status refuse(std::string_view what, std::string_view expression) {
  return error(ErrorCode::kUnsupported, "{} in the expression {} is not supported", what, quoted(expression));
}

Result<std::string> translate(std::string_view expression) {
  std::string out = "(*LF)";
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const std::string_view rest = expression.substr(i + 1);
    if (c == '\\') {
      if (rest.empty()) return refuse("a backslash at the end", expression);
      const std::string translated = translate_escape(rest[0], in_class);
      if (translated.empty()) return refuse(fmt::format("\\{}", rest[0]), expression);
      out += translated;
      ++i;
      if (rest[0] != 'p' && rest[0] != 'P' && rest[0] != 'x') continue;
      const size_t close =
          rest.starts_with("p{") || rest.starts_with("P{") || rest.starts_with("x{") ? rest.find('}') : 0;
      if (close == std::string_view::npos) return refuse("an open brace", expression);
      const std::string_view braced = rest.substr(1, close);
      if (close > 0) out += rest[0] == 'x' ? std::string(braced) : translate_property(braced);
      i += close;
      continue;
    }
    if (in_class && (c == '[' || (c == '&' && rest.starts_with('&')))) {
      return refuse("a class inside a class", expression);
    }
    if (!in_class && c == '(' && rest.starts_with('?') && !is_known_group(rest.substr(1))) {
      return refuse(fmt::format("({}", rest.substr(0, 2)), expression);
    }
    if (!in_class && c == '(' && rest.starts_with('*')) return refuse("(*", expression);
    if (!in_class && c == '}' && rest.starts_with('+')) return refuse("}+", expression);
    out += c;
    if (c == '[' && rest.starts_with("^]")) return refuse("[^]", expression);
    if (c == '[' && rest.starts_with(']')) return refuse("[]", expression);
    in_class = c == '[' || (in_class && c != ']');
  }
  return out;
}

}  // namespace

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits;
  bool has_jit = false;  // otherwise PCRE2 interprets the expression
};

Regex::Space::Space() : match_data_(pcre2_match_data_create(1, nullptr)) {
  check(match_data_ != nullptr, "PCRE2 has no memory for match data");
}

Regex::Space::~Space() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
}

Result<Regex> Regex::create(std::string_view expression, uint32_t match_limit) {
  if (expression.size() > kExpressionBytesMax) {
    return error(ErrorCode::kUnsupported, "an expression has {} bytes; at most {} are read", expression.size(),
                 kExpressionBytesMax);
  }
  HEADWATER_ASSIGN_OR_RETURN(const std::string pattern, translate(expression));
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &offset, nullptr));
  if (!compiled->code) {
    PCRE2_UCHAR message[128] = {};
    pcre2_get_error_message(code, message, sizeof message);
    return error(ErrorCode::kUnsupported, "the expression {} does not compile: {} (at {})", quoted(pattern),
                 reinterpret_cast<const char*>(message), offset);
  }
  compiled->has_jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled->limits.reset(pcre2_match_context_create(nullptr));
  check(compiled->limits != nullptr, "PCRE2 has no memory for a match context");
  pcre2_set_match_limit(compiled->limits.get(), match_limit);
  pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKib);
  return Regex(std::move(compiled));
}

std::string Regex::escape(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (static_cast<uint8_t>(c) < 0x80 && c >= ' ' && !is_letter_or_digit(c)) out += '\\';
    out += c;
  }
  return out;
}

Regex::Regex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from, Space& space) const {
  auto* data = static_cast<pcre2_match_data*>(space.match_data_);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const pcre2_code* code = compiled_->code.get();
  pcre2_match_context* limits = compiled_->limits.get();
  int found = compiled_->has_jit ? pcre2_jit_match(code, subject, text.size(), from, 0, data, limits)
                                 : PCRE2_ERROR_JIT_STACKLIMIT;
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter takes its memory from the heap
    found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, limits);
  }
  if (found < 0) return std::nullopt;  // no match, or the match limit
  const PCRE2_SIZE* border = pcre2_get_ovector_pointer(data);
  return Match{border[0], border[1]};
}

}  // namespace headwater::text
