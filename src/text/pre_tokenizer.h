// Cuts text into words; BPE never merges across a border of words. A list of steps, each of which cuts what the one before
// left (tokenizer_spec.h says what a step does). A step sees one piece alone, so that what becomes of a piece depends on
// nothing around it, but for whether it begins the text.
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
  struct Scratch {                   // working space of one thread
    std::vector<std::string> texts;  // of the steps that change text: the part that was made last
    Regex::Space space;
  };
  class Parts {  // takes the parts of a piece
   public:
    // part is not empty, and is valid until add() returns. begins: nothing stands in front of it.
    virtual void add(std::string_view part, bool begins) = 0;

   protected:
    ~Parts() = default;
  };

  static constexpr size_t kStepsMax = 64;

  // kUnsupported when an expression cannot be used, or there are too many steps.
  static Result<PreTokenizer> create(std::span<const PreTokenizerStep> steps);

  size_t steps() const { return steps_.size(); }
  // Words are in the byte alphabet (byte_alphabet.h). Where its step is the last nothing looks at the symbols, so that it
  // is left out.
  bool gives_symbols() const { return gives_symbols_; }

  // The parts that one step makes of a piece, which is valid UTF-8, in order. A part may be cut by another step, with the
  // same scratch, while add() has it.
  void cut(size_t step, std::string_view piece, bool begins, Scratch& scratch, Parts& parts) const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::vector<Regex> expression;  // one for kSplit
  };
  std::vector<Step> steps_;
  bool gives_symbols_ = false;
};

}  // namespace headwater::text
