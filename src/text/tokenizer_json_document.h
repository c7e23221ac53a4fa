// A tokenizer.json taken apart as it is read: the vocabulary and the merges, which are nearly all of it, as flat lists, and
// the rest as JSON nodes. Memory stays in proportion to the file; nesting is bounded by the parser.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::text {

struct TokenizerDocument {
  struct Text {  // a stretch of `characters`
    uint32_t begin;
    uint32_t size;
  };
  std::string characters;
  std::vector<Text> spellings;      // of model.vocab: {"the": 5} or [["the", -3.2]]
  std::vector<double> numbers;      // beside each spelling: its id, or its score
  bool numbers_are_scores = false;  // the second form
  std::vector<Text> merges;         // of model.merges: left, right, left, right; or "left right" each
  bool merges_are_pairs = false;
  boost::json::value rest;  // with null for those two

  std::string_view of(Text text) const { return std::string_view(characters).substr(text.begin, text.size); }
};

// kCorrupt, with the offset, when text is not JSON or the lists have another form; kUnsupported when the rest is too large.
Result<TokenizerDocument> parse_tokenizer_document(std::string_view text);

}  // namespace headwater::text
