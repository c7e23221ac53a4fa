// The paged cache again, for tests: maps, sets and brute force instead of tables, lists and counters. Pages have ids of
// their own that are never used twice; the tree is a map from a salt and a whole prefix to the page that ends it.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kv/paged_cache.h"

namespace headwater::kv {

class CacheModel {
 public:
  using Tokens = std::vector<TokenId>;
  using Key = std::pair<uint64_t, Tokens>;  // salt (low word), whole prefix; a prefix sorts right before its extensions
  struct Node {
    int page = 0;
    uint32_t pins = 0;
    uint64_t unprotected_since = 0;  // 0: protected
  };
  struct Sequence {
    uint64_t salt = 0;
    uint32_t published = 0;
    std::vector<int> pages;
  };
  struct Reserved {
    ErrorCode code = ErrorCode::kOk;
    bool copied = false;
  };

  explicit CacheModel(const CacheConfig& config) : config_(config) {}

  const std::map<Key, Node>& tree() const { return tree_; }
  const std::map<SequenceSlot, Sequence>& sequences() const { return sequences_; }

  std::map<int, uint32_t> reference_counts() const {  // of the pages in use
    std::map<int, uint32_t> counts;
    for (const auto& [slot, sequence] : sequences_) {
      for (const int page : sequence.pages) ++counts[page];
    }
    for (const auto& [key, node] : tree_) ++counts[node.page];
    return counts;
  }
  uint32_t pages_free() const { return config_.pages - static_cast<uint32_t>(reference_counts().size()); }
  uint32_t pages_held() const { return static_cast<uint32_t>(held().size()); }
  uint32_t pages_available() const {
    return pages_free() + static_cast<uint32_t>(std::ranges::count_if(
                              tree_, [](const auto& entry) { return entry.second.unprotected_since > 0; }));
  }

  PrefixMatch match(const Tokens& tokens, uint64_t salt) const {
    PrefixMatch match;
    for (const Key& key : path(tokens, salt)) {
      match.tokens += config_.page_size;
      match.pages_evictable += tree_.at(key).unprotected_since > 0;
    }
    return match;
  }

  void open(SequenceSlot slot, uint64_t salt) { sequences_[slot] = {.salt = salt}; }

  uint32_t attach_prefix(SequenceSlot slot, Tokens tokens, uint32_t tokens_max) {
    Sequence& sequence = sequences_.at(slot);
    tokens.resize(std::min<size_t>({tokens.size(), tokens_max, config_.pages_per_sequence_max * config_.page_size}));
    for (const Key& key : path(tokens, sequence.salt)) sequence.pages.push_back(tree_.at(key).page);
    sequence.published = static_cast<uint32_t>(sequence.pages.size());
    settle();
    return sequence.published * config_.page_size;
  }

  Reserved reserve(SequenceSlot slot, uint32_t written, uint32_t total) {
    Sequence& sequence = sequences_.at(slot);
    const uint32_t size = static_cast<uint32_t>(sequence.pages.size());
    const uint32_t pages_total = (total + config_.page_size - 1) / config_.page_size;
    if (pages_total > config_.pages_per_sequence_max) return {ErrorCode::kInvalidArgument};
    std::vector<uint32_t> shared;  // indices that get a fresh page
    for (uint32_t i = written / config_.page_size; i < size; ++i) {
      const bool to_write = i < pages_total || i == written / config_.page_size;
      if (to_write && reference_counts().at(sequence.pages[i]) > 1) shared.push_back(i);
    }
    const uint32_t needed = static_cast<uint32_t>(shared.size()) + (pages_total > size ? pages_total - size : 0);
    if (needed > pages_available()) return {ErrorCode::kExhausted};
    while (pages_free() < needed) evict_one();
    Reserved reserved;
    for (const uint32_t i : shared) {
      sequence.pages[i] = next_page_++;
      reserved.copied |= i == written / config_.page_size && written % config_.page_size != 0;
    }
    while (sequence.pages.size() < pages_total) sequence.pages.push_back(next_page_++);
    settle();
    return reserved;
  }

  void fork(SequenceSlot parent, SequenceSlot child) { sequences_[child] = sequences_.at(parent); }

  void publish(SequenceSlot slot, const Tokens& tokens, uint32_t computed) {
    Sequence& sequence = sequences_.at(slot);
    for (uint32_t& i = sequence.published; i < computed / config_.page_size; ++i) {
      const Key key(sequence.salt, Tokens(tokens.begin(), tokens.begin() + (i + 1) * config_.page_size));
      sequence.pages[i] = tree_.try_emplace(key, Node{.page = sequence.pages[i]}).first->second.page;
    }
    settle();
  }

  void trim(SequenceSlot slot, uint32_t tokens) {
    Sequence& sequence = sequences_.at(slot);
    const size_t pages = (tokens + config_.page_size - 1) / config_.page_size;
    sequence.pages.resize(std::min(sequence.pages.size(), pages));
    sequence.published = std::min(sequence.published, tokens / config_.page_size);
    settle();
  }

  void close(SequenceSlot slot) {
    sequences_.erase(slot);
    settle();
  }

  uint32_t pin(const Tokens& tokens, uint64_t salt, int pins) {  // pins: +1 or -1
    const std::vector<Key> keys = path(tokens, salt);
    for (const Key& key : keys) tree_.at(key).pins += static_cast<uint32_t>(pins);
    settle();
    return static_cast<uint32_t>(keys.size()) * config_.page_size;
  }

  bool evict_one() {  // the node unprotected for longest; settle() makes that one a leaf
    auto oldest = tree_.end();
    for (auto it = tree_.begin(); it != tree_.end(); ++it) {
      const uint64_t since = it->second.unprotected_since;
      if (since > 0 && (oldest == tree_.end() || since < oldest->second.unprotected_since)) oldest = it;
    }
    if (oldest == tree_.end()) return false;
    tree_.erase(oldest);
    return true;
  }

 private:
  std::set<int> held() const {
    std::set<int> pages;
    for (const auto& [slot, sequence] : sequences_) pages.insert(sequence.pages.begin(), sequence.pages.end());
    return pages;
  }

  std::vector<Key> path(const Tokens& tokens, uint64_t salt) const {
    std::vector<Key> keys;
    for (size_t end = config_.page_size; end <= tokens.size(); end += config_.page_size) {
      Key key(salt, Tokens(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(end)));
      if (!tree_.contains(key)) break;
      keys.push_back(std::move(key));
    }
    return keys;
  }

  static bool extends(const Key& longer, const Key& key) {
    return longer.first == key.first && longer.second.size() >= key.second.size() &&
           std::equal(key.second.begin(), key.second.end(), longer.second.begin());
  }

  // Which nodes are protected now; those that just lost it are aged, the deepest as the oldest.
  void settle() {
    const std::set<int> pages_held = held();
    std::vector<std::pair<size_t, Node*>> lost;  // depth, node
    for (auto it = tree_.begin(); it != tree_.end(); ++it) {
      bool is_protected = false;
      for (auto below = it; below != tree_.end() && extends(below->first, it->first); ++below) {
        is_protected |= below->second.pins > 0 || pages_held.contains(below->second.page);
      }
      if (is_protected) {
        it->second.unprotected_since = 0;
      } else if (it->second.unprotected_since == 0) {
        lost.emplace_back(it->first.second.size(), &it->second);
      }
    }
    std::ranges::sort(lost, std::greater<>(), [](const auto& entry) { return entry.first; });
    for (const auto& [depth, node] : lost) node->unprotected_since = ++clock_;
  }

  CacheConfig config_;
  std::map<Key, Node> tree_;
  std::map<SequenceSlot, Sequence> sequences_;
  int next_page_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace headwater::kv
