// Small SentencePiece-like vocabularies for tests and fuzzers: scores or log probabilities, all bytes, marks for spaces.
#pragma once

#include <deque>
#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {

// Text that it gives back as it was, but for U+2581, which stands for a space.
class TestSentencePiece {
 public:
  explicit TestSentencePiece(ModelKind model) {
    spec_.model = model;
    spec_.has_byte_fallback = true;
    spec_.fuses_unknown = true;
    spec_.unknown = add("<unk>", TokenType::kUnknown, 0);
    spec_.bos = add("<s>", TokenType::kControl, 0);
    spec_.eos = add("</s>", TokenType::kControl, 0);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte, 0);
    double score = -1;
    for (const char* piece : {"▁t", "he", "▁the", "▁a", "in", "▁▁", "▁▁▁▁", "aa", "aaaa", "s>", "</", "▁", "a",
                              "b",  "e",  "h",    "i",  "n",  "s",  "t",    "é",  "字",   "<",  "/",  ">", "\u0301"}) {
      add(piece, TokenType::kNormal, score);
      score -= 0.5;
    }
    add("[TOOL]", TokenType::kUserDefined, 0);
    spec_.normalizer = {{.kind = NormalizerStep::Kind::kPrepend, .content = " "},
                        {.kind = NormalizerStep::Kind::kReplace, .pattern = {" "}, .content = "▁"}};
    spec_.space_mark = "▁";
    spec_.leading_space = TokenizerSpec::LeadingSpace::kOneDropped;
  }
  TestSentencePiece(const TestSentencePiece&) = delete;
  TestSentencePiece& operator=(const TestSentencePiece&) = delete;

  TokenizerSpec& spec() { return spec_; }
  Tokenizer tokenizer() const { return Tokenizer::create(spec_).value(); }

 private:
  TokenId add(std::string spelling, TokenType type, double score) {
    strings_.push_back(std::move(spelling));
    const auto id = static_cast<TokenId>(spec_.tokens.size());
    spec_.tokens.push_back(strings_.back());
    spec_.types.push_back(type);
    spec_.scores.push_back(score);
    const bool is_control = type == TokenType::kControl;
    if (is_control || type == TokenType::kUserDefined) {
      spec_.added.push_back({.spelling = strings_.back(), .id = id, .is_control = is_control});
    }
    return id;
  }

  std::deque<std::string> strings_;  // what the views of spec_ point at
  TokenizerSpec spec_;
};

}  // namespace headwater::text
