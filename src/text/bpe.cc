#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr uint32_t kNone = 0xffffffffu;
constexpr size_t kJoinedBytesMax = 1024;  // every cut of a token is tried, which takes the square of its length

size_t border(char before, char after) {
  return static_cast<size_t>(static_cast<uint8_t>(before)) << 8 | static_cast<uint8_t>(after);
}

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

bool worse(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

Bpe::Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary),
      is_byte_level_(spec.is_byte_level),
      fuses_unknown_(spec.fuses_unknown),
      ignores_merges_(spec.ignores_merges),
      unknown_(spec.unknown),
      merges_(spec.model == ModelKind::kBpe ? spec.merges.size() : 0),
      whole_(new std::atomic<Whole>[vocabulary.size()]()) {
  first_ids_.fill(kNoToken);
  byte_tokens_.fill(kNoToken);
  for (unsigned byte = 0; byte < (is_byte_level_ ? 256u : 128u); ++byte) {
    const char content = static_cast<char>(byte);
    first_ids_[byte] = vocabulary.find({&content, 1});
  }
  for (size_t id = 0; spec.has_byte_fallback && id < spec.tokens.size(); ++id) {
    const auto byte = byte_of_token(spec.tokens[id]);
    if (spec.types[id] == TokenType::kByte && byte) byte_tokens_[*byte] = static_cast<TokenId>(id);
  }
  has_byte_tokens_ = std::find(byte_tokens_.begin(), byte_tokens_.end(), kNoToken) == byte_tokens_.end();
}

Result<Bpe> Bpe::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  Bpe bpe(spec, vocabulary);
  // Neighbouring unknown characters that become one token must stay together.
  const bool keeps_unknown_apart = bpe.has_byte_tokens_ || !spec.fuses_unknown || spec.unknown == kNoToken;
  if (!spec.is_byte_level && !spec.ignores_merges && keeps_unknown_apart) bpe.joins_.resize(1 << 16);
  HEADWATER_RETURN_IF_ERROR(spec.model == ModelKind::kBpe ? bpe.add_merges(spec) : bpe.add_all_joins(spec));
  return bpe;
}

void Bpe::add_join(TokenId left, TokenId right, MergeTable::Merge merge) {
  merges_.insert(left, right, merge);
  if (!joins_.empty()) joins_[border(vocabulary_->content(left).back(), vocabulary_->content(right).front())] = true;
}

Status Bpe::add_merges(const TokenizerSpec& spec) {
  std::unordered_set<std::string_view> others;  // tokens that text never becomes
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (vocabulary_->content(static_cast<TokenId>(id)).empty()) others.insert(spec.tokens[id]);
  }
  const auto content = [&](std::string_view spelling) {
    return is_byte_level_ ? bytes_of_spelling(spelling) : std::string(spelling);
  };
  for (uint32_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string left = content(spec.merges[rank].first);
    const std::string right = content(spec.merges[rank].second);
    const std::string joined = left + right;
    const TokenId left_id = vocabulary_->find(left);
    const TokenId right_id = vocabulary_->find(right);
    const TokenId joined_id = vocabulary_->find(joined);
    if (left_id != kNoToken && right_id != kNoToken && joined_id != kNoToken) {
      add_join(left_id, right_id, {rank, joined_id});
      continue;
    }
    const std::string& missing = left_id == kNoToken ? left : right_id == kNoToken ? right : joined;
    if (!others.contains(missing)) {
      return error(ErrorCode::kCorrupt, "merge {} is \"{}\" \"{}\", but the vocabulary lacks \"{}\"", rank,
                   spec.merges[rank].first, spec.merges[rank].second, missing);
    }
  }
  return {};
}

// A token with a character that is no token cannot be reached; SentencePiece makes every character of its pieces a piece.
Status Bpe::add_all_joins(const TokenizerSpec& spec) {
  std::vector<double> scores;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view content = vocabulary_->content(static_cast<TokenId>(id));
    if (content.size() > kJoinedBytesMax) {
      return error(ErrorCode::kUnsupported, "token {} has {} bytes; with scores for merges at most {} are read", id,
                   content.size(), kJoinedBytesMax);
    }
    if (!content.empty()) scores.push_back(spec.scores[id]);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  struct Join {
    TokenId left, right, joined;
  };
  std::vector<Join> joins;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view content = vocabulary_->content(static_cast<TokenId>(id));
    for (size_t cut = 1; cut < content.size(); ++cut) {
      if (is_continuation(content[cut])) continue;
      const TokenId left = vocabulary_->find(content.substr(0, cut));
      const TokenId right = left == kNoToken ? kNoToken : vocabulary_->find(content.substr(cut));
      if (right != kNoToken) joins.push_back({left, right, static_cast<TokenId>(id)});
    }
  }
  merges_ = MergeTable(joins.size());
  for (const Join& join : joins) {
    const double score = spec.scores[static_cast<size_t>(join.joined)];
    const auto rank = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin();
    add_join(join.left, join.right, {static_cast<uint32_t>(rank), join.joined});
  }
  return {};
}

void Bpe::fill_symbols(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](TokenId id, size_t bytes) {
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, static_cast<uint32_t>(bytes), index - 1, index + 1});
  };
  size_t unknown_bytes = 0;  // of an unknown token that is still to be added
  for (size_t at = 0; at < word.size();) {
    const auto first = static_cast<uint8_t>(word[at]);
    const size_t bytes = is_byte_level_ || first < 0x80 ? 1 : first_character(word.substr(at)).bytes;
    const std::string_view character = word.substr(at, bytes);
    at += bytes;
    const TokenId id = bytes == 1 ? first_ids_[first] : vocabulary_->find(character);
    if (id != kNoToken) {
      if (unknown_bytes > 0) add(unknown_, unknown_bytes);
      unknown_bytes = 0;
      add(id, bytes);
    } else if (has_byte_tokens_) {
      for (const char byte : character) add(byte_tokens_[static_cast<uint8_t>(byte)], 1);
    } else if (unknown_ != kNoToken) {
      if (unknown_bytes > 0 && !fuses_unknown_) {
        add(unknown_, unknown_bytes);
        unknown_bytes = 0;
      }
      unknown_bytes += bytes;
    }
  }
  if (unknown_bytes > 0) add(unknown_, unknown_bytes);
  if (symbols.empty()) return;
  symbols.front().left = kNone;
  symbols.back().right = kNone;
}

void Bpe::offer(Scratch& scratch, uint32_t left) const {
  const Scratch::Symbol& first = scratch.symbols[left];
  if (first.right == kNone) return;
  const Scratch::Symbol& second = scratch.symbols[first.right];
  const MergeTable::Merge merge = merges_.find(first.id, second.id);
  if (merge.rank == MergeTable::kNoRank) return;
  scratch.heap.push_back({merge.rank, left, first.bytes + second.bytes, merge.joined});
}

void Bpe::merge(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) offer(scratch, i);
  std::make_heap(heap.begin(), heap.end(), worse);
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), worse);
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.left];
    if (left.bytes == 0 || left.right == kNone) continue;
    Scratch::Symbol& right = symbols[left.right];
    if (left.bytes + right.bytes != best.bytes) continue;
    left.id = best.joined;
    left.bytes = best.bytes;
    left.right = right.right;
    right.bytes = 0;
    if (left.right != kNone) symbols[left.right].left = best.left;
    for (const uint32_t changed : {left.left, best.left}) {
      if (changed == kNone) continue;
      const size_t candidates = heap.size();
      offer(scratch, changed);
      if (heap.size() > candidates) std::push_heap(heap.begin(), heap.end(), worse);
    }
  }
}

void Bpe::encode_by_merges(std::string_view word, TokenId whole, Scratch& scratch, std::vector<TokenId>& out) const {
  fill_symbols(word, scratch);
  if (scratch.symbols.empty()) return;
  merge(scratch);
  const auto& symbols = scratch.symbols;
  for (uint32_t i = 0; i != kNone; i = symbols[i].right) out.push_back(symbols[i].id);
  if (whole != kNoToken && symbols[0].right == kNone && symbols[0].id == whole) {
    whole_[static_cast<size_t>(whole)].store(kMade, std::memory_order_relaxed);
  }
}

void Bpe::encode_uncut(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  check(word.size() < kNone, "a word of 4 GiB or more");
  const uint64_t hash = Vocabulary::hash_of(word);
  const TokenId whole = vocabulary_->find(word, hash);
  if (whole != kNoToken &&
      (ignores_merges_ || whole_[static_cast<size_t>(whole)].load(std::memory_order_relaxed) == kMade)) {
    out.push_back(whole);
    return;
  }
  if (scratch.words.empty() || word.size() > sizeof Scratch::Word::word) {
    return encode_by_merges(word, whole, scratch, out);
  }
  Scratch::Word& kept = scratch.words[(hash >> 24) % scratch.words.size()];
  if (word == std::string_view(kept.word, kept.bytes)) {
    out.insert(out.end(), kept.ids, kept.ids + kept.count);
    return;
  }
  const size_t first = out.size();
  encode_by_merges(word, whole, scratch, out);
  const size_t count = out.size() - first;
  if (count > std::size(kept.ids)) return;
  kept.bytes = static_cast<uint8_t>(word.copy(kept.word, word.size()));
  kept.count = static_cast<uint8_t>(count);
  std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(first), count, kept.ids);
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  size_t begin = 0;
  for (size_t at = 1; !joins_.empty() && at < word.size(); ++at) {
    if (is_continuation(word[at]) || joins_[border(word[at - 1], word[at])]) continue;
    encode_uncut(word.substr(begin, at - begin), scratch, out);
    begin = at;
  }
  encode_uncut(word.substr(begin), scratch, out);
}

}  // namespace headwater::text
