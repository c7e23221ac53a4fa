#include "text/unigram.h"

#include <algorithm>
#include <limits>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr size_t kTokenBytesMax = 1024;  // looked for at every character of a word
constexpr double kNever = -std::numeric_limits<double>::infinity();

Trie trie_of(const TokenizerSpec& spec) {
  std::vector<Trie::Entry> entries;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.is_ordinary(id)) entries.emplace_back(spec.tokens[id], static_cast<uint32_t>(id));
  }
  return Trie(std::move(entries));
}

}  // namespace

Unigram::Unigram(const TokenizerSpec& spec)
    : trie_(trie_of(spec)), scores_(spec.scores), unknown_(spec.unknown), fuses_unknown_(spec.fuses_unknown) {
  byte_tokens_.fill(kNoToken);
  double worst = 0;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] == TokenType::kNormal) worst = std::min(worst, scores_[id]);
    const auto byte = byte_of_token(spec.tokens[id]);
    if (spec.has_byte_fallback && spec.types[id] == TokenType::kByte && byte) {
      byte_tokens_[*byte] = static_cast<TokenId>(id);
    }
  }
  unknown_score_ = worst - kUnknownPenalty;
  has_byte_tokens_ = std::find(byte_tokens_.begin(), byte_tokens_.end(), kNoToken) == byte_tokens_.end();
}

Result<Unigram> Unigram::create(const TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.is_ordinary(id) || spec.tokens[id].size() <= kTokenBytesMax) continue;
    return error(ErrorCode::kUnsupported, "token {} of the unigram vocabulary has {} bytes; at most {} are read", id,
                 spec.tokens[id].size(), kTokenBytesMax);
  }
  Unigram unigram(spec);
  if (unigram.unknown_ == kNoToken && !unigram.has_byte_tokens_) {
    return error(ErrorCode::kUnsupported,
                 "the unigram vocabulary has no unknown token and lacks tokens of single bytes; "
                 "it needs one or the other");
  }
  return unigram;
}

void Unigram::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  check(word.size() < std::numeric_limits<uint32_t>::max(), "a word of 4 GiB or more");
  auto& best = scratch.best;
  best.assign(word.size() + 1, {kNever, 0, kNoToken});
  best[0].score = 0;
  for (size_t at = 0; at < word.size();) {
    const double here = best[at].score;
    const size_t character_bytes = first_character(word.substr(at)).bytes;
    bool has_character = false;
    const auto offer = [&](size_t bytes, double score, TokenId id) {
      Scratch::Best& end = best[at + bytes];
      if (here + score > end.score) end = {here + score, static_cast<uint32_t>(at), id};
    };
    trie_.prefixes(word.substr(at), [&](size_t bytes, uint32_t id) {
      offer(bytes, scores_[id], static_cast<TokenId>(id));
      has_character = has_character || bytes == character_bytes;
    });
    if (!has_character) offer(character_bytes, unknown_score_, kNoToken);
    at += character_bytes;
  }
  auto& path = scratch.path;
  path.clear();
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    path.push_back(best[end]);
    path.back().score = static_cast<double>(end);
  }
  bool was_unknown = false;
  for (auto token = path.rbegin(); token != path.rend(); ++token) {
    const bool is_unknown = token->id == kNoToken;
    if (!is_unknown) {
      out.push_back(token->id);
    } else if (has_byte_tokens_) {
      const auto end = static_cast<size_t>(token->score);
      for (size_t i = token->begin; i < end; ++i) out.push_back(byte_tokens_[static_cast<uint8_t>(word[i])]);
    } else if (!was_unknown || !fuses_unknown_) {
      out.push_back(unknown_);
    }
    was_unknown = is_unknown;
  }
}

}  // namespace headwater::text
