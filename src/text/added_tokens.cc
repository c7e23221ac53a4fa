#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace headwater::text {
namespace {

Trie trie_of(const std::vector<std::string>& spellings) {
  std::vector<Trie::Entry> entries;
  for (size_t i = 0; i < spellings.size(); ++i) {
    if (!spellings[i].empty()) entries.emplace_back(spellings[i], static_cast<uint32_t>(i));
  }
  return Trie(std::move(entries));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> spellings)
    : tokens_(std::move(tokens)), spellings_(std::move(spellings)), trie_(trie_of(spellings_)) {}

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
  size_t taken = 0;  // up to here text belongs to the tokens found
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
    if (token->strips_left) match.begin = std::max(taken, trimmed_right(text.substr(0, begin)).size());
    if (token->strips_right) match.end = text.size() - trimmed_left(text.substr(end)).size();
    match.begin = std::max(match.begin, taken);
    taken = std::max(match.end, taken);
    match.end = taken;
    matches.push_back(match);
  }
}

}  // namespace headwater::text
