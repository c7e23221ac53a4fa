#include "text/normalizer.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

std::string replace_literal(std::string_view text, std::string_view wanted, std::string_view content,
                            size_t bytes_max) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found; (found = text.find(wanted, at)) != std::string_view::npos; at = found + wanted.size()) {
    if (out.size() > bytes_max) return out;
    out.append(text, at, found - at);
    out += content;
  }
  out.append(text, at);
  return out;
}

std::string replace_matches(std::string_view text, const Regex& expression, std::string_view content,
                            Regex::Space& space, size_t bytes_max) {
  std::string out;
  size_t at = 0;
  expression.each_match(text, space, [&](Regex::Match match) {
    if (out.size() > bytes_max) return;
    out.append(text, at, match.begin - at);
    out += content;
    at = match.end;
  });
  out.append(text, at);
  return out;
}

}  // namespace

Result<Normalizer> Normalizer::create(std::span<const NormalizerStep> specs) {
  if (specs.size() > kStepsMax) {
    return error(ErrorCode::kUnsupported, "the normaliser has {} steps; at most {} are read", specs.size(), kStepsMax);
  }
  std::vector<Step> steps;
  for (const NormalizerStep& spec : specs) {
    if (spec.kind != NormalizerStep::Kind::kCharsmap && spec.content.size() > kContentBytesMax) {
      return error(ErrorCode::kUnsupported,
                   "the normaliser puts {} bytes into a text at one place; at most {} are read", spec.content.size(),
                   kContentBytesMax);
    }
    steps.push_back({spec, {}, {}});
    if (spec.kind == NormalizerStep::Kind::kReplace && spec.pattern.is_expression) {
      HEADWATER_ASSIGN_OR_RETURN(Regex expression, Regex::create(spec.pattern.text));
      steps.back().expression.push_back(std::move(expression));
    }
    if (spec.kind == NormalizerStep::Kind::kReplace && spec.pattern.text.empty()) {
      return error(ErrorCode::kUnsupported, "the normaliser Replace has an empty pattern");
    }
    if (spec.kind == NormalizerStep::Kind::kCharsmap) {
      HEADWATER_ASSIGN_OR_RETURN(Charsmap charsmap, Charsmap::create(spec.content));
      steps.back().charsmap.push_back(std::move(charsmap));
      steps.back().spec.content.clear();
    }
  }
  return Normalizer(std::move(steps));
}

std::string Normalizer::apply_step(const Step& step, std::string text, Ends ends, Regex::Space& space,
                                   size_t bytes_max) {
  using Kind = NormalizerStep::Kind;
  switch (step.spec.kind) {
    case Kind::kNfc:
    case Kind::kNfd:
    case Kind::kNfkc:
    case Kind::kNfkd:
      return normalized(text, step.spec.kind == Kind::kNfkc || step.spec.kind == Kind::kNfkd,
                        step.spec.kind == Kind::kNfc || step.spec.kind == Kind::kNfkc);
    case Kind::kLowercase:
      return lowercased(text);
    case Kind::kStripAccents:
      return without_marks(text);
    case Kind::kStrip: {
      std::string_view kept = text;
      if (step.spec.strips_left && ends.begin) kept = trimmed_left(kept);
      if (step.spec.strips_right && ends.end) kept = trimmed_right(kept);
      return std::string(kept);
    }
    case Kind::kReplace:
      return step.spec.pattern.is_expression
                 ? replace_matches(text, step.expression[0], step.spec.content, space, bytes_max)
                 : replace_literal(text, step.spec.pattern.text, step.spec.content, bytes_max);
    case Kind::kPrepend:
      return ends.begin && !text.empty() ? step.spec.content + text : text;
    case Kind::kCharsmap:
      return step.charsmap[0].apply(text, step.spec.is_longest_prefix, bytes_max);
  }
  return text;
}

Result<std::string> Normalizer::apply(std::string_view text, Ends ends, Regex::Space& space, Budget& budget) const {
  std::string out(text);
  size_t most = 0;  // bytes of any step
  for (const Step& step : steps_) {
    out = apply_step(step, std::move(out), ends, space, budget.left_);
    most = std::max(most, out.size());
    if (most <= budget.left_) continue;
    return error(
        ErrorCode::kInvalidArgument,
        "the tokenizer's normaliser makes more than {} bytes of the text, {} times its length: the file of the "
        "tokenizer multiplies such text; send less of it, or mend the file",
        budget.bytes_max_, kFactor);
  }
  budget.left_ -= most;
  return out;
}

Result<bool> Normalizer::drops_front(std::string_view text, Regex::Space& space) const {
  if (text.empty()) return false;
  Budget budget(text.size());
  HEADWATER_ASSIGN_OR_RETURN(const std::string front,
                             apply(text.substr(0, first_character(text).bytes), {true, false}, space, budget));
  return front.empty();
}

}  // namespace headwater::text
