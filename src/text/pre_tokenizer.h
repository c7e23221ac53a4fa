// Cuts text into words with the regular expressions that belong to a vocabulary (tokenizer.ggml.pre). BPE never merges
// across a border of words.
//
// A pre-tokeniser is a list of expressions. Each cuts every piece that the one before left: matches become pieces, and
// so does what lies between them. Matching runs in PCRE2 (UTF-8, Unicode properties, JIT where it is there) under a
// match limit; should an expression ever hit it, the rest of that piece stays whole, so that no text takes
// exponential time. `\s` in an expression is Unicode White_Space (PCRE2's own also holds U+180E, which is a letter-like
// format character since Unicode 6.3).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::text {

// What a vocabulary's pre-tokeniser name stands for.
struct PreTokenizerRule {
  std::string_view name;
  std::vector<std::string_view> expressions;
  bool whole_words_first;  // a word that is a token of the vocabulary becomes that token without any merge
  bool adds_bos;           // where the metadata do not say
};

// kUnsupported, listing the known names.
Result<PreTokenizerRule> pre_tokenizer_rule(std::string_view name);

class PreTokenizer {
 public:
  // kInvalidArgument when an expression does not compile.
  static Result<PreTokenizer> create(std::span<const std::string_view> expressions, uint32_t match_limit = 10'000'000);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the words of text, which is valid UTF-8, in order; their concatenation is text. scratch is working space.
  void split(std::string_view text, std::vector<std::string_view>& words, std::vector<std::string_view>& scratch) const;

 private:
  struct Expression;
  explicit PreTokenizer(std::vector<Expression> expressions);
  std::vector<Expression> expressions_;
};

}  // namespace headwater::text
