#include "text/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "text/unicode.h"

namespace headwater::text {
namespace {

// Where normalisation makes two spellings one, the first token counts, control tokens before the others. (The package
// `tokenizers` takes another one from run to run.)
Trie trie_of(const std::vector<AddedToken>& tokens, const std::vector<std::string>& spellings) {
  std::vector<Trie::Entry> entries;
  std::unordered_set<std::string_view> taken;
  for (const bool is_control : {true, false}) {
    for (size_t i = 0; i < spellings.size(); ++i) {
      if (tokens[i].is_control != is_control || spellings[i].empty() || !taken.insert(spellings[i]).second) continue;
      entries.emplace_back(spellings[i], static_cast<uint32_t>(i));
    }
  }
  return Trie(std::move(entries));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> spellings)
    : tokens_(std::move(tokens)), spellings_(std::move(spellings)), trie_(trie_of(tokens_, spellings_)) {}

const AddedToken* AddedTokens::longest(std::string_view text, size_t at, size_t control_end, size_t& bytes) const {
  const AddedToken* best = nullptr;
  trie_.prefixes(text.substr(at), [&](size_t length, uint32_t index) {
    if (tokens_[index].is_control && at + length > control_end) return;
    best = &tokens_[index];
    bytes = length;
  });
  return best;
}

void AddedTokens::find(std::string_view text, std::span<const Run> runs, std::vector<Match>& matches) const {
  size_t taken = 0;  // up to here text belongs to the token found last
  size_t spaces_end =
      0;  // of the spaces that were looked at last, so that a run of them is not looked at again and again
  auto run = runs.begin();
  for (size_t at = 0; at < text.size();) {
    size_t bytes = 1;
    const AddedToken* token = nullptr;
    if (trie_.begins(text[at])) {
      while (run->end <= at) ++run;
      token = longest(text, at, run->special == SpecialTokens::kParse ? run->end : 0, bytes);
    }
    const size_t begin = at;
    const size_t end = at += bytes;
    if (token == nullptr) continue;
    if (token->is_single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
      continue;
    Match match = {begin, end, token->id};
    if (token->strips_left) {
      const std::string_view between = text.substr(std::min(taken, begin), begin - std::min(taken, begin));
      match.begin = std::max(taken, begin - (between.size() - trimmed_right(between).size()));
    }
    if (token->strips_right) {
      if (end >= spaces_end) spaces_end = text.size() - trimmed_left(text.substr(end)).size();
      match.end = spaces_end;
    }
    if (match.begin >= match.end) continue;  // it was found in spaces that the one before it took
    taken = match.end;
    matches.push_back(match);
  }
}

}  // namespace headwater::text
