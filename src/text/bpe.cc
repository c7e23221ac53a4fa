#include "text/bpe.h"

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

constexpr uint32_t kNone = 0xffffffffu;

bool worse(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

TokenId find(const Bpe::Vocabulary& vocabulary, const std::string& spelling) {
  const auto found = vocabulary.find(spelling);
  return found == vocabulary.end() ? kNoToken : found->second;
}

}  // namespace

Result<Bpe> Bpe::create(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges) {
  Bpe bpe(merges.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), symbol);
    bpe.byte_ids_[byte] = find(vocabulary, symbol);
  }
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return error(ErrorCode::kCorrupt, "merge {} is \"{}\"; it needs two tokens with a space between",
                   bpe.merged_.size(), merge);
    }
    const std::string left(merge.substr(0, space));
    const std::string right(merge.substr(space + 1));
    const TokenId left_id = find(vocabulary, left);
    const TokenId right_id = find(vocabulary, right);
    const TokenId merged_id = find(vocabulary, left + right);
    if (left_id == kNoToken || right_id == kNoToken || merged_id == kNoToken) {
      return error(ErrorCode::kCorrupt, "merge {} is \"{}\", but the vocabulary lacks {}", bpe.merged_.size(), merge,
                   left_id == kNoToken    ? left
                   : right_id == kNoToken ? right
                                          : left + right);
    }
    bpe.ranks_.insert(left_id, right_id, static_cast<uint32_t>(bpe.merged_.size()));
    bpe.merged_.push_back(merged_id);
  }
  return bpe;
}

void Bpe::offer(Scratch& scratch, uint32_t left) const {
  const Scratch::Symbol& first = scratch.symbols[left];
  if (first.right == kNone) return;
  const Scratch::Symbol& second = scratch.symbols[first.right];
  const uint32_t rank = ranks_.rank_of(first.id, second.id);
  if (rank == MergeTable::kNoRank) return;
  scratch.heap.push_back({rank, left, first.bytes + second.bytes});
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  check(word.size() < kNone, "a word of 4 GiB or more");
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (const char c : word) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
    if (id == kNoToken) continue;
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, 1, index == 0 ? kNone : index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().right = kNone;
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
    left.id = merged_[best.rank];
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
  for (uint32_t i = 0; i != kNone; i = symbols[i].right) out.push_back(symbols[i].id);
}

}  // namespace headwater::text
