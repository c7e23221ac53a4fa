// Cuts text into words; BPE never merges across a border of words. A list of steps, each applied to every piece that the
// one before left (tokenizer_spec.h says what a step does). Words of a byte-level vocabulary come out as plain bytes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {

class PreTokenizer {
 public:
  struct Piece {
    size_t begin;
    size_t end;
  };
  struct Scratch {  // working space of one thread; the words of the last split() point into it or into its text
    std::vector<Piece> pieces;
    std::vector<Piece> next;
    std::string texts[2];
    Regex::Space space;
  };

  // kUnsupported when an expression cannot be used.
  static Result<PreTokenizer> create(std::span<const PreTokenizerStep> steps);

  // Appends the words of text, which is valid UTF-8, in order. begins: nothing stands in front of text.
  void split(std::string_view text, bool begins, Scratch& scratch, std::vector<std::string_view>& words) const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::vector<Regex> expression;  // one for kSplit
  };
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  std::vector<Step> steps_;
};

}  // namespace headwater::text
