#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "core/shown.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr uint32_t kNone = 0xffffffffu;
constexpr size_t kFew = 32;               // symbols
constexpr size_t kJoinedBytesMax = 1024;  // every cut of a token is tried, which takes the square of its length

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
  for (unsigned byte = 0; spec.has_byte_fallback && byte < 128; ++byte) {  // a character of its own needs none
    if (byte_tokens_[byte] == kNoToken) byte_tokens_[byte] = first_ids_[byte];
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

TokenId Bpe::part(std::string_view content) const {
  const TokenId id = vocabulary_->find(content);
  return id == kNoToken && content.size() == 1 ? byte_tokens_[static_cast<uint8_t>(content[0])] : id;
}

void Bpe::add_join(std::string_view left, std::string_view right, MergeTable::Merge merge) {
  merges_.insert(part(left), part(right), merge);
  if (!joins_.empty()) joins_[border(left.back(), right.front())] = true;
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
    const TokenId left_id = part(left);
    const TokenId right_id = part(right);
    const TokenId joined_id = vocabulary_->find(joined);
    if (left_id != kNoToken && right_id != kNoToken && joined_id != kNoToken) {
      add_join(left, right, {rank, joined_id});
      continue;
    }
    const std::string& missing = left_id == kNoToken ? left : right_id == kNoToken ? right : joined;
    if (!others.contains(missing)) {
      return error(ErrorCode::kCorrupt, "merge {} is {} {}, but the vocabulary lacks {}", rank,
                   quoted(spec.merges[rank].first), quoted(spec.merges[rank].second), quoted(missing));
    }
  }
  return {};
}

// A token with a character that is neither a token nor a byte cannot be reached; SentencePiece makes every character of its pieces a piece.
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
    std::string_view left, right;
    TokenId joined;
  };
  std::vector<Join> joins;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view content = vocabulary_->content(static_cast<TokenId>(id));
    for (size_t cut = 1; cut < content.size(); ++cut) {
      if (is_continuation(content[cut])) continue;
      const std::string_view left = content.substr(0, cut), right = content.substr(cut);
      if (part(left) != kNoToken && part(right) != kNoToken) joins.push_back({left, right, static_cast<TokenId>(id)});
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

void Bpe::fill(std::string_view word, std::vector<TokenId>& ids) const {
  ids.clear();
  bool was_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const auto first = static_cast<uint8_t>(word[at]);
    const size_t bytes = is_byte_level_ || first < 0x80 ? 1 : first_character(word.substr(at)).bytes;
    const std::string_view character = word.substr(at, bytes);
    at += bytes;
    const TokenId id = bytes == 1 ? first_ids_[first] : vocabulary_->find(character);
    const bool is_unknown = id == kNoToken && !has_byte_tokens_;
    if (id != kNoToken) {
      ids.push_back(id);
    } else if (has_byte_tokens_) {
      for (const char byte : character) ids.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    } else if (unknown_ != kNoToken && !(fuses_unknown_ && was_unknown)) {
      ids.push_back(unknown_);
    }
    was_unknown = is_unknown;
  }
}

void Bpe::merge_few(std::vector<TokenId>& ids) const {
  MergeTable::Merge merges[kFew];  // of each symbol with the one behind it
  size_t count = ids.size();
  const auto look_up = [&](size_t left) {
    merges[left] = left + 1 < count ? merges_.find(ids[left], ids[left + 1]) : MergeTable::Merge();
  };
  for (size_t i = 0; i < count; ++i) look_up(i);
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) break;
    ids[best] = merges[best].joined;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i] = merges[i + 1];
    }
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.resize(count);
}

void Bpe::offer(Scratch& scratch, uint32_t left) const {
  const Scratch::Symbol& first = scratch.symbols[left];
  if (first.right == kNone) return;
  const Scratch::Symbol& second = scratch.symbols[first.right];
  const MergeTable::Merge merge = merges_.find(first.id, second.id);
  if (merge.rank == MergeTable::kNoRank) return;
  scratch.heap.push_back({merge.rank, left, first.length + second.length, merge.joined});
}

void Bpe::merge_many(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  for (const TokenId id : scratch.ids) {
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, 1, index - 1, index + 1});
  }
  symbols.front().left = kNone;
  symbols.back().right = kNone;
  heap.clear();
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) offer(scratch, i);
  std::make_heap(heap.begin(), heap.end(), worse);
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), worse);
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.left];
    if (left.length == 0 || left.right == kNone) continue;
    Scratch::Symbol& right = symbols[left.right];
    if (left.length + right.length != best.length) continue;
    left.id = best.joined;
    left.length = best.length;
    left.right = right.right;
    right.length = 0;
    if (left.right != kNone) symbols[left.right].left = best.left;
    for (const uint32_t changed : {left.left, best.left}) {
      if (changed == kNone) continue;
      const size_t candidates = heap.size();
      offer(scratch, changed);
      if (heap.size() > candidates) std::push_heap(heap.begin(), heap.end(), worse);
    }
  }
  scratch.ids.clear();
  for (uint32_t i = 0; i != kNone; i = symbols[i].right) scratch.ids.push_back(symbols[i].id);
}

void Bpe::encode_by_merges(std::string_view word, TokenId whole, Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<TokenId>& ids = scratch.ids;
  fill(word, ids);
  if (ids.size() <= kFew) {
    merge_few(ids);
  } else {
    merge_many(scratch);
  }
  out.insert(out.end(), ids.begin(), ids.end());
  if (whole != kNoToken && ids.size() == 1 && ids[0] == whole) {
    whole_[static_cast<size_t>(whole)].store(kMade, std::memory_order_relaxed);
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  check(word.size() < kNone, "a word of 4 GiB or more");
  const TokenId whole = vocabulary_->find(word);
  if (whole != kNoToken &&
      (ignores_merges_ || whole_[static_cast<size_t>(whole)].load(std::memory_order_relaxed) == kMade)) {
    out.push_back(whole);
  } else {
    encode_by_merges(word, whole, scratch, out);
  }
}

}  // namespace headwater::text
