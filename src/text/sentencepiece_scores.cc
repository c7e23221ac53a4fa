#include "text/sentencepiece_scores.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/shown.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr std::string_view kMark = "\u2581";
constexpr float kNever = -1e9f;          // of what no merge makes
constexpr size_t kTokenBytesMax = 1024;  // all cuts of a token are looked up

// A cut at spaces, of which the normalizer leaves none.
bool is_idle(const PreTokenizerStep& step) {
  return step.kind == PreTokenizerStep::Kind::kSplit && step.pattern == Pattern{" "} && !step.is_inverted;
}

class Scores {
 public:
  Scores(const TokenizerSpec& spec, std::span<const TokenType> types) : spec_(spec), types_(types) {
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      if (is_made(id)) ids_.insert_or_assign(spec.tokens[id], id);
    }
  }

  Result<std::vector<float>> make() {
    for (const auto& [left, right] : spec_.merges) add(left, right);
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (is_made(id)) HEADWATER_RETURN_IF_ERROR(check_all_cuts(id));
    }
    std::vector<float> scores(types_.size(), kNever);
    for (size_t begin = 0, end = 0; begin < joins_.size(); begin = end) {
      end = begin + 1;  // of the joins that make these tokens: all of one score
      for (size_t i = begin; i < end; ++i) {
        end = std::max(end, last_.at(joins_[i].id) + 1);
        scores[joins_[i].id] = -static_cast<float>(begin);
      }
      const std::span<const Join> joins(&joins_[begin], end - begin);
      const bool is_one_score = std::ranges::is_sorted(
          joins, [](const Join& a, const Join& b) { return std::pair(a.left, a.right) > std::pair(b.left, b.right); });
      const bool is_one_token = std::ranges::all_of(joins, [&](const Join& join) { return join.id == joins[0].id; });
      if (!is_one_token && !is_one_score) return refusal(joins[0].id);
    }
    return scores;
  }

 private:
  struct Join {
    size_t id;
    size_t left, right;  // characters of the halves
  };

  bool is_made(size_t id) const { return types_[id] == TokenType::kNormal; }
  // The pair that makes this token where it is cut there.
  static uint64_t pair_of(size_t id, size_t cut) { return id * kTokenBytesMax + cut; }

  void add(std::string_view left, std::string_view right) {
    const auto found = ids_.find(fmt::format("{}{}", left, right));
    if (found == ids_.end()) return;  // an added token, which no merge makes
    if (left.size() < kTokenBytesMax) pairs_.insert(pair_of(found->second, left.size()));
    last_[found->second] = joins_.size();
    joins_.push_back({found->second, count_characters(left), count_characters(right)});
  }

  // Whether every cut into two tokens is a merge.
  Status check_all_cuts(size_t id) const {
    const std::string_view text = spec_.tokens[id];
    if (text.size() > kTokenBytesMax) {
      return error(ErrorCode::kUnsupported, "tokenizer.json: token {} has {} bytes; the limit is {}", id, text.size(),
                   kTokenBytesMax);
    }
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (!ids_.contains(text.substr(0, cut)) || !ids_.contains(text.substr(cut))) continue;
      if (!pairs_.contains(pair_of(id, cut))) return refusal(id);
    }
    return {};
  }

  Status refusal(size_t id) const {
    return error(ErrorCode::kUnsupported,
                 "tokenizer.json: the merges around {} do not come from scores, and GGUF keeps scores alone: use the "
                 "folder as it is",
                 quoted(spec_.tokens[id]));
  }

  const TokenizerSpec& spec_;
  std::span<const TokenType> types_;
  std::unordered_map<std::string_view, size_t> ids_;  // of tokens that merges make
  std::unordered_set<uint64_t> pairs_;
  std::vector<Join> joins_;                  // in the order of the merges
  std::unordered_map<size_t, size_t> last_;  // of each token: its last join
};

}  // namespace

std::optional<bool> puts_mark_in_front(const TokenizerSpec& spec) {
  if (spec.ignores_merges) return std::nullopt;
  if (spec.normalizer.empty() && spec.pre_tokenizer.size() == 1 && spec.pre_tokenizer[0].mark == kMark &&
      spec.pre_tokenizer[0].kind == PreTokenizerStep::Kind::kMetaspace) {
    return spec.pre_tokenizer[0].prepend != PreTokenizerStep::Prepend::kNever;
  }
  if (!std::ranges::all_of(spec.pre_tokenizer, is_idle)) return std::nullopt;
  std::span<const NormalizerStep> steps = spec.normalizer;
  const bool prepends = !steps.empty() && steps[0].kind == NormalizerStep::Kind::kPrepend && steps[0].content == kMark;
  if (prepends) steps = steps.subspan(1);
  const bool marks_spaces = steps.size() == 1 && steps[0].kind == NormalizerStep::Kind::kReplace &&
                            steps[0].pattern == Pattern{" "} && steps[0].content == kMark;
  return marks_spaces ? std::optional(prepends) : std::nullopt;
}

Result<std::vector<float>> scores_of_merges(const TokenizerSpec& spec, std::span<const TokenType> types) {
  return Scores(spec, types).make();
}

}  // namespace headwater::text
