#include "text/pre_tokenizer.h"

#include "text/byte_alphabet.h"

namespace headwater::text {
namespace {

using Kind = PreTokenizerStep::Kind;
using Prepend = PreTokenizerStep::Prepend;

// Joins the alternating stretches of one piece (matches and what lies between) as a behaviour says, and gives on what is
// left.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::string_view piece, bool begins, PreTokenizer::Parts& parts)
      : behavior_(behavior), piece_(piece), begins_(begins), parts_(parts) {}

  void add(size_t end, bool is_match) {  // the stretch that follows the one before
    if (!joins(is_match)) give();
    end_ = end;
    if (behavior_ == SplitBehavior::kRemoved && is_match) begin_ = end_;
    was_match_ = is_match;
  }
  void give() {
    const size_t begin = begin_;
    begin_ = end_;
    if (begin < end_) parts_.add(piece_.substr(begin, end_ - begin), begins_ && begin == 0);
  }

 private:
  bool joins(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        return false;
      case SplitBehavior::kContiguous:
        return is_match == was_match_;
      case SplitBehavior::kMergedWithPrevious:
        return is_match && !was_match_;
      case SplitBehavior::kMergedWithNext:  // of several matches in a row, the last goes to what follows
        return was_match_ && !is_match;
    }
    return false;
  }

  SplitBehavior behavior_;
  std::string_view piece_;
  bool begins_;
  PreTokenizer::Parts& parts_;
  size_t begin_ = 0;  // of what is not given on yet
  size_t end_ = 0;
  bool was_match_ = false;
};

void split(const Regex& expression, const PreTokenizerStep& step, std::string_view piece, bool begins,
           Regex::Space& space, PreTokenizer::Parts& parts) {
  Joiner joiner(step.behavior, piece, begins, parts);
  size_t at = 0;
  expression.each_match(piece, space, [&](Regex::Match match) {
    if (at < match.begin) joiner.add(match.begin, step.is_inverted);
    joiner.add(match.end, !step.is_inverted);
    at = match.end;
  });
  if (at < piece.size()) joiner.add(piece.size(), step.is_inverted);
  joiner.give();
}

// Spaces of the piece become marks, one is put in front, and where the step splits each mark begins a part.
void mark_spaces(const PreTokenizerStep& step, std::string_view piece, bool begins, std::string& text,
                 PreTokenizer::Parts& parts) {
  const auto give = [&] {
    if (!text.empty()) parts.add(text, begins);
    begins = begins && text.empty();
    text.clear();
  };
  const bool has_mark = piece.starts_with(' ') || piece.starts_with(step.mark);
  const bool prepends = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && begins);
  if (prepends && !has_mark) text += step.mark;
  for (size_t i = 0; i < piece.size();) {
    const bool is_space = piece[i] == ' ';
    const bool is_mark = is_space || piece.substr(i).starts_with(step.mark);
    if (is_mark && step.splits) give();
    if (is_mark) {
      text += step.mark;
      i += is_space ? 1 : step.mark.size();
    } else {
      text += piece[i++];
    }
  }
  give();
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(std::span<const PreTokenizerStep> specs) {
  if (specs.size() > kStepsMax) {
    return error(ErrorCode::kUnsupported, "the pre-tokeniser has {} steps; at most {} are read", specs.size(),
                 kStepsMax);
  }
  PreTokenizer made;
  for (const PreTokenizerStep& spec : specs) {
    if (spec.kind == Kind::kByteLevel) {
      if (&spec == &specs.back()) break;
      made.gives_symbols_ = true;
    }
    made.steps_.push_back({spec, {}});
    if (spec.kind != Kind::kSplit) continue;
    HEADWATER_ASSIGN_OR_RETURN(
        Regex expression,
        Regex::create(spec.pattern.is_expression ? spec.pattern.text : Regex::escape(spec.pattern.text)));
    made.steps_.back().expression.push_back(std::move(expression));
  }
  return made;
}

void PreTokenizer::cut(size_t step, std::string_view piece, bool begins, Scratch& scratch, Parts& parts) const {
  const PreTokenizerStep& spec = steps_[step].spec;
  if (spec.kind == Kind::kSplit) return split(steps_[step].expression[0], spec, piece, begins, scratch.space, parts);
  scratch.texts.resize(steps_.size());
  std::string& text = scratch.texts[step];
  text.clear();
  switch (spec.kind) {
    case Kind::kMetaspace:
      return mark_spaces(spec, piece, begins, text, parts);
    case Kind::kPrefixSpace:
      if (!piece.starts_with(' ')) text += ' ';
      text += piece;
      break;
    case Kind::kByteLevel:
      for (const char byte : piece) append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), text);
      break;
    case Kind::kSplit:
      break;
  }
  parts.add(text, begins);
}

}  // namespace headwater::text
