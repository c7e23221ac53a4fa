#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <pcre2.h>

namespace headwater::text {
namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

constexpr uint32_t kHeapLimitKib = 64 * 1024;

// Writes \s and \S out as Unicode White_Space. \S inside a class does not occur in our expressions.
std::string with_unicode_white_space(std::string_view expression) {
  static constexpr std::string_view kWhiteSpace = R"(\t-\r\x{85}\p{Z})";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\' || i + 1 == expression.size()) {
      in_class = c == '[' || (in_class && c != ']');
      out += c;
      continue;
    }
    const char escaped = expression[++i];
    if (escaped == 's' && in_class) {
      out += kWhiteSpace;
    } else if (escaped == 's' || escaped == 'S') {
      out += fmt::format("[{}{}]", escaped == 'S' ? "^" : "", kWhiteSpace);
    } else {
      out += c;
      out += escaped;
    }
  }
  return out;
}

}  // namespace

struct PreTokenizer::Expression {
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits;

  // Appends the pieces into which this expression cuts text.
  void split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>& pieces) const {
    const PCRE2_SIZE* border = pcre2_get_ovector_pointer(match);
    size_t begin = 0;
    while (begin < text.size()) {
      const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, limits.get());
      if (found < 0) break;  // no match, or the match limit
      if (border[0] > begin) pieces.push_back(text.substr(begin, border[0] - begin));
      pieces.push_back(text.substr(border[0], border[1] - border[0]));
      begin = border[1];
    }
    if (begin < text.size()) pieces.push_back(text.substr(begin));
  }
};

Result<PreTokenizer> PreTokenizer::create(std::span<const std::string_view> expressions, uint32_t match_limit) {
  std::vector<Expression> compiled;
  for (const std::string_view source : expressions) {
    const std::string pattern = with_unicode_white_space(source);
    int code = 0;
    PCRE2_SIZE offset = 0;
    Expression expression;
    expression.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                        PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr));
    if (!expression.code) {
      PCRE2_UCHAR message[128] = {};
      pcre2_get_error_message(code, message, sizeof message);
      return error(ErrorCode::kInvalidArgument, "the expression \"{}\" does not compile: {} (at {})", pattern,
                   reinterpret_cast<const char*>(message), offset);
    }
    pcre2_jit_compile(expression.code.get(), PCRE2_JIT_COMPLETE);  // without JIT, pcre2_match() interprets
    expression.limits.reset(pcre2_match_context_create(nullptr));
    check(expression.limits != nullptr, "PCRE2 has no memory for a match context");
    pcre2_set_match_limit(expression.limits.get(), match_limit);
    pcre2_set_heap_limit(expression.limits.get(), kHeapLimitKib);
    compiled.push_back(std::move(expression));
  }
  return PreTokenizer(std::move(compiled));
}

PreTokenizer::PreTokenizer(std::vector<Expression> expressions) : expressions_(std::move(expressions)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words,
                         std::vector<std::string_view>& scratch) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
  check(match != nullptr, "PCRE2 has no memory for match data");
  const size_t first = words.size();
  words.push_back(text);
  for (const Expression& expression : expressions_) {
    scratch.assign(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    words.resize(first);
    for (const std::string_view piece : scratch) expression.split(piece, match.get(), words);
  }
}

}  // namespace headwater::text
