#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/byte_alphabet.h"

namespace headwater::text {
namespace {

using Piece = PreTokenizer::Piece;

// Joins the alternating pieces of one text (matches and what lies between) as a behaviour says, and keeps what is left.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::vector<Piece>& out) : behavior_(behavior), out_(out), first_(out.size()) {}

  void add(Piece piece, bool is_match) {
    const bool is_new = out_.size() == first_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) out_.push_back(piece);
        break;
      case SplitBehavior::kIsolated:
        out_.push_back(piece);
        break;
      case SplitBehavior::kContiguous:
        join_if(is_match == was_match_ && !is_new, piece);
        break;
      case SplitBehavior::kMergedWithPrevious:
        join_if(is_match && !was_match_ && !is_new, piece);
        break;
      case SplitBehavior::kMergedWithNext:  // of several matches in a row, the last goes to what follows
        join_if(was_match_ && !is_match, piece);
        break;
    }
    was_match_ = is_match;
  }

 private:
  void join_if(bool joins, Piece piece) {
    if (joins) {
      out_.back().end = piece.end;
    } else {
      out_.push_back(piece);
    }
  }

  SplitBehavior behavior_;
  std::vector<Piece>& out_;
  size_t first_;
  bool was_match_ = false;
};

void split_piece(const Regex& expression, const PreTokenizerStep& step, std::string_view text, Piece piece,
                 PreTokenizer::Scratch& scratch) {
  const size_t first = scratch.next.size();
  Joiner joiner(step.behavior, scratch.next);
  size_t at = piece.begin;
  expression.each_match(text.substr(piece.begin, piece.end - piece.begin), scratch.space, [&](Regex::Match match) {
    const Piece matched = {piece.begin + match.begin, piece.begin + match.end};
    if (at < matched.begin) joiner.add({at, matched.begin}, step.is_inverted);
    joiner.add(matched, !step.is_inverted);
    at = matched.end;
  });
  if (at < piece.end) joiner.add({at, piece.end}, step.is_inverted);
  const auto is_empty = [](const Piece& made) { return made.begin == made.end; };
  scratch.next.erase(
      std::remove_if(scratch.next.begin() + static_cast<std::ptrdiff_t>(first), scratch.next.end(), is_empty),
      scratch.next.end());
}

bool prepends(PreTokenizerStep::Prepend prepend, bool begins_text) {
  return prepend == PreTokenizerStep::Prepend::kAlways || (prepend == PreTokenizerStep::Prepend::kFirst && begins_text);
}

// Spaces of the piece become marks, one is put in front, and where the step splits each mark begins a word.
void append_metaspace(const PreTokenizerStep& step, std::string_view piece, bool begins_text, std::string& text,
                      std::vector<Piece>& pieces) {
  size_t begin = text.size();
  const auto end_piece = [&] {
    if (begin < text.size()) pieces.push_back({begin, text.size()});
    begin = text.size();
  };
  const bool has_mark = piece.starts_with(' ') || piece.starts_with(step.mark);
  if (prepends(step.prepend, begins_text) && !has_mark) text += step.mark;
  for (size_t i = 0; i < piece.size();) {
    const bool is_space = piece[i] == ' ';
    const bool is_mark = is_space || piece.substr(i).starts_with(step.mark);
    if (is_mark && step.splits) end_piece();
    if (is_mark) {
      text += step.mark;
      i += is_space ? 1 : step.mark.size();
    } else {
      text += piece[i++];
    }
  }
  end_piece();
}

// The piece as symbols of the byte alphabet, or with a space in front.
void append_changed(PreTokenizerStep::Kind kind, std::string_view piece, std::string& text,
                    std::vector<Piece>& pieces) {
  const size_t begin = text.size();
  if (kind == PreTokenizerStep::Kind::kByteLevel) {
    for (const char byte : piece) append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), text);
  } else {
    if (!piece.starts_with(' ')) text += ' ';
    text += piece;
  }
  pieces.push_back({begin, text.size()});
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(std::span<const PreTokenizerStep> specs) {
  std::vector<Step> steps;
  for (const PreTokenizerStep& spec : specs) {
    steps.push_back({spec, {}});
    if (spec.kind != PreTokenizerStep::Kind::kSplit) continue;
    HEADWATER_ASSIGN_OR_RETURN(
        Regex expression,
        Regex::create(spec.pattern.is_expression ? spec.pattern.text : Regex::escape(spec.pattern.text)));
    steps.back().expression.push_back(std::move(expression));
  }
  return PreTokenizer(std::move(steps));
}

void PreTokenizer::split(std::string_view text, bool begins, Scratch& scratch,
                         std::vector<std::string_view>& words) const {
  using Kind = PreTokenizerStep::Kind;
  scratch.pieces.assign(1, {0, text.size()});
  size_t turn = 0;  // which of the two texts is written next
  bool is_mapped = false;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    const Kind kind = step.spec.kind;
    if (kind == Kind::kByteLevel && s + 1 == steps_.size()) break;  // nothing looks at the symbols: bytes as they are
    scratch.next.clear();
    std::string& changed = scratch.texts[turn];
    if (kind != Kind::kSplit) changed.clear();
    for (const Piece& piece : scratch.pieces) {
      const std::string_view content = text.substr(piece.begin, piece.end - piece.begin);
      if (kind == Kind::kSplit) {
        split_piece(step.expression[0], step.spec, text, piece, scratch);
      } else if (kind == Kind::kMetaspace) {
        append_metaspace(step.spec, content, begins && piece.begin == 0, changed, scratch.next);
      } else {
        append_changed(kind, content, changed, scratch.next);
      }
    }
    scratch.pieces.swap(scratch.next);
    if (kind == Kind::kSplit) continue;
    text = changed;
    turn = 1 - turn;
    is_mapped = is_mapped || kind == Kind::kByteLevel;
  }
  if (!is_mapped) {
    for (const Piece& piece : scratch.pieces) words.push_back(text.substr(piece.begin, piece.end - piece.begin));
    return;
  }
  std::string& bytes = scratch.texts[turn];
  bytes.clear();
  bytes.reserve(text.size());  // symbols are never shorter than their bytes, so the views stay
  for (const Piece& piece : scratch.pieces) {
    const size_t begin = bytes.size();
    bytes += bytes_of_spelling(text.substr(piece.begin, piece.end - piece.begin));
    words.push_back(std::string_view(bytes).substr(begin));
  }
}

}  // namespace headwater::text
