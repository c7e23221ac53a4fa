#include "text/normalizer.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

std::string replace_literal(std::string_view text, std::string_view wanted, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found; (found = text.find(wanted, at)) != std::string_view::npos; at = found + wanted.size()) {
    out.append(text, at, found - at);
    out += content;
  }
  out.append(text, at);
  return out;
}

std::string replace_matches(std::string_view text, const Regex& expression, std::string_view content,
                            Regex::Space& space) {
  std::string out;
  size_t at = 0;
  expression.each_match(text, space, [&](Regex::Match match) {
    out.append(text, at, match.begin - at);
    out += content;
    at = match.end;
  });
  out.append(text, at);
  return out;
}

}  // namespace

Result<Normalizer> Normalizer::create(std::span<const NormalizerStep> specs) {
  std::vector<Step> steps;
  for (const NormalizerStep& spec : specs) {
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

std::string Normalizer::apply_step(const Step& step, std::string text, Ends ends, Regex::Space& space) {
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
      return step.spec.pattern.is_expression ? replace_matches(text, step.expression[0], step.spec.content, space)
                                             : replace_literal(text, step.spec.pattern.text, step.spec.content);
    case Kind::kPrepend:
      return ends.begin && !text.empty() ? step.spec.content + text : text;
    case Kind::kCharsmap:
      return step.charsmap[0].apply(text, step.spec.is_longest_prefix);
  }
  return text;
}

std::string Normalizer::apply(std::string_view text, Ends ends, Regex::Space& space) const {
  std::string out(text);
  for (const Step& step : steps_) out = apply_step(step, std::move(out), ends, space);
  return out;
}

bool Normalizer::drops_front(std::string_view text, Regex::Space& space) const {
  return !text.empty() && apply(text.substr(0, first_character(text).bytes), {true, false}, space).empty();
}

}  // namespace headwater::text
