// A small byte-level vocabulary for tests and fuzzers: all 256 bytes, a few merges, four added tokens.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/pre_tokenizer_rules.h"
#include "text/tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace headwater::text {

class TestVocabulary {
 public:
  explicit TestVocabulary(std::string_view pre_tokenizer) {
    PreTokenizerRule rule = pre_tokenizer_rule(pre_tokenizer).value();
    spec_.pre_tokenizer = std::move(rule.steps);
    spec_.ignores_merges = rule.ignores_merges;
    spec_.is_byte_level = true;
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string symbol;
      append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), symbol);
      add(symbol, TokenType::kNormal);
    }
    for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"h", "e"},
                                                                                      {"l", "l"},
                                                                                      {"he", "ll"},
                                                                                      {"hell", "o"},
                                                                                      {"Ġ", "hello"},
                                                                                      {"Ġ", "Ġ"},
                                                                                      {"ĠĠ", "ĠĠ"},
                                                                                      {"a", "a"},
                                                                                      {"aa", "aa"},
                                                                                      {"a", "b"},
                                                                                      {"Ã", "©"},
                                                                                      {"ð", "Ł"},
                                                                                      {"ðŁ", "ĺ"},
                                                                                      {"Ċ", "Ċ"}}) {
      add(left + right, TokenType::kNormal);
      strings_.push_back(left);
      strings_.push_back(right);
      spec_.merges.emplace_back(strings_[strings_.size() - 2], strings_.back());
    }
    spec_.bos = add("<s>", TokenType::kControl);
    spec_.eos = add("<|im_end|>", TokenType::kControl);
    add("<|im_end|><tool>", TokenType::kUserDefined);
    add("[TOOL]", TokenType::kUserDefined);
  }
  TestVocabulary(const TestVocabulary&) = delete;
  TestVocabulary& operator=(const TestVocabulary&) = delete;

  TokenizerSpec& spec() { return spec_; }
  Tokenizer tokenizer() const { return Tokenizer::create(spec_).value(); }

 private:
  TokenId add(const std::string& spelling, TokenType type) {
    strings_.push_back(spelling);
    spec_.tokens.push_back(strings_.back());
    spec_.types.push_back(type);
    const auto id = static_cast<TokenId>(spec_.tokens.size() - 1);
    const bool is_control = type == TokenType::kControl;
    if (type != TokenType::kNormal) {
      spec_.added.push_back({.spelling = strings_.back(), .id = id, .is_control = is_control});
    }
    return id;
  }

  std::deque<std::string> strings_;  // what the views of spec_ point at
  TokenizerSpec spec_;
};

}  // namespace headwater::text
