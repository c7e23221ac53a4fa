// Changes text before words are cut, step by step (tokenizer_spec.h says what a step does).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/charsmap.h"
#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {

class Normalizer {
 public:
  // Which ends of the stretch are in hand: the others are not stripped, and nothing is put in front.
  struct Ends {
    bool begin = true;
    bool end = true;
  };

  // kUnsupported when an expression cannot be used; kCorrupt for a broken charsmap.
  static Result<Normalizer> create(std::span<const NormalizerStep> steps);

  std::string apply(std::string_view text, Ends ends, Regex::Space& space) const;  // valid UTF-8 in and out
  // Whether nothing is left of the first character of a text.
  bool drops_front(std::string_view text, Regex::Space& space) const;
  bool is_empty() const { return steps_.empty(); }

 private:
  struct Step {
    NormalizerStep spec;
    std::vector<Regex> expression;   // one for kReplace with an expression
    std::vector<Charsmap> charsmap;  // one for kCharsmap
  };
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  static std::string apply_step(const Step& step, std::string text, Ends ends, Regex::Space& space);

  std::vector<Step> steps_;
};

}  // namespace headwater::text
