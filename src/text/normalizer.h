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

  // How many bytes may be made of a text and its stretches together. Unicode's forms make up to 11 of one; a file's own steps
  // could fill the memory.
  class Budget {
   public:
    explicit Budget(size_t text_bytes) : bytes_max_(kFactor * text_bytes + kContentBytesMax), left_(bytes_max_) {}

   private:
    friend class Normalizer;
    size_t bytes_max_;
    size_t left_;
  };

  static constexpr size_t kFactor = 64;
  static constexpr size_t kStepsMax = 64;
  static constexpr size_t kContentBytesMax = 1024;  // of what one step puts in at one place

  // kUnsupported when an expression cannot be used, or beyond these limits; kCorrupt for a broken charsmap.
  static Result<Normalizer> create(std::span<const NormalizerStep> steps);

  // Valid UTF-8 in and out. kInvalidArgument: the budget is used up.
  Result<std::string> apply(std::string_view text, Ends ends, Regex::Space& space, Budget& budget) const;
  // Whether nothing is left of the first character of a text.
  Result<bool> drops_front(std::string_view text, Regex::Space& space) const;
  bool is_empty() const { return steps_.empty(); }

 private:
  struct Step {
    NormalizerStep spec;
    std::vector<Regex> expression;   // one for kReplace with an expression
    std::vector<Charsmap> charsmap;  // one for kCharsmap
  };
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  // A result of more than bytes_max bytes may be cut there.
  static std::string apply_step(const Step& step, std::string text, Ends ends, Regex::Space& space, size_t bytes_max);

  std::vector<Step> steps_;
};

}  // namespace headwater::text
