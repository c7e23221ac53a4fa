// Which full page holds which prefix: a radix tree whose nodes are the physical pages themselves.
//
//   salt A -- p3 [t0..t31] -- p7 [t32..t63] -- p9      A page in the tree is one physical page, so its node lives at
//                                    \------- p4      index PageId of a flat array. A prompt that diverges inside an
//   salt B -- p5                                       edge adds a second child: nothing is split, moved or allocated.
//
// Children are found through one open-addressing table keyed by the chained hash H(hash of parent, tokens of this page)
// (for a first page: of its salt) and then verified: same parent page (same salt), same tokens, one by one. A hash
// collision costs a comparison and can never give a wrong page; by induction over the parents the whole prefix is
// equal.
//
// Eviction. A node is *protected* while a sequence holds it, while it is pinned, and while a child of it is protected.
// All others, and only they, are in the eviction list, in the order in which they lost their last protection: the age
// of a page counts from its last use. A parent loses protection after its children do, so it always stands behind them:
//   1. the oldest entry is always a leaf, and evicting from that end frees the whole list, one page a step;
//   2. hence the length of the list is exactly the number of pages that eviction can free.
// protect and unprotect walk up only as far as the state changes. Everything else is O(1) besides hashing and
// comparing.
//
// Allocates only in its constructor and in audit(). Design and measurement:
// docs/decisions/0001-prefix-tree-node-per-page.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/core.h"
#include "kv/salt.h"
#include "kv/sip_hash.h"

namespace headwater::kv {

struct PrefixTreeConfig {
  uint32_t pages = 0;      // of the pool; ids below this
  uint32_t page_size = 0;  // tokens a page
  uint64_t hash_key[2] = {0, 0};
};

// SipHash-2-4-128 of the parent's hash and this page's tokens.
Hash128 hash_page(const uint64_t (&key)[2], const Hash128& parent, std::span<const TokenId> tokens);

class PrefixTree {
 public:
  using PageHash = decltype(&hash_page);
  explicit PrefixTree(const PrefixTreeConfig& config, PageHash hash = hash_page);  // tests pass a hash that collides

  uint32_t size() const { return size_; }            // pages in the tree
  uint32_t evictable() const { return evictable_; }  // of those, unprotected ones
  bool contains(PageId page) const { return nodes_[page].in_tree; }
  bool is_evictable(PageId page) const { return contains(page) && nodes_[page].protectors == 0; }
  bool is_held(PageId page) const { return nodes_[page].held; }
  uint32_t pins(PageId page) const { return nodes_[page].pins; }

  // The child of `parent` (kNoPage: the first page under `salt`) with these page_size tokens, or kNoPage.
  PageId find(PageId parent, const Salt& salt, std::span<const TokenId> tokens) const;

  // Calls visit(PageId) for each page of the longest cached prefix of `tokens`, first page first; returns how many.
  template <typename Visit>
  uint32_t walk(std::span<const TokenId> tokens, const Salt& salt, Visit visit) const {
    uint32_t pages = 0;
    for (PageId page = kNoPage; tokens.size() >= page_size_; tokens = tokens.subspan(page_size_), ++pages) {
      page = find(page, salt, tokens.first(page_size_));
      if (page == kNoPage) break;
      visit(page);
    }
    return pages;
  }

  // Adds `page`, which a sequence holds and which is not in the tree, under a protected parent. Returns `page`, or the
  // page already there for the same parent and tokens; then nothing changed.
  PageId insert(PageId page, PageId parent, const Salt& salt, std::span<const TokenId> tokens);

  void hold(PageId page);    // the first sequence took it
  void unhold(PageId page);  // the last sequence gave it back
  void pin(PageId page);     // counted
  void unpin(PageId page);
  PageId evict_oldest();  // removes the page that was last used longest ago; kNoPage: all are protected

  Status audit() const;

 private:
  struct Node {
    Hash128 hash;
    Salt salt;
    PageId parent = kNoPage;
    uint32_t children = 0;
    uint32_t protectors = 0;  // held + (pins > 0) + protected children
    uint32_t pins = 0;
    PageId older = kNoPage;  // neighbours in the eviction list
    PageId newer = kNoPage;
    bool in_tree = false;
    bool held = false;
  };

  std::span<const TokenId> tokens_of(PageId page) const;
  Hash128 hash_of(PageId parent, const Salt& salt, std::span<const TokenId> tokens) const;
  PageId lookup(const Hash128& hash, PageId parent, const Salt& salt, std::span<const TokenId> tokens) const;
  size_t home(PageId page) const { return nodes_[page].hash.low & table_mask_; }
  void table_add(PageId page);
  void table_remove(PageId page);
  void protect(PageId page);
  void unprotect(PageId page);
  void list_push_newest(PageId page);
  void list_remove(PageId page);
  Status audit_list() const;

  uint32_t page_size_;
  uint64_t hash_key_[2];
  PageHash hash_;
  std::vector<Node> nodes_;      // [pages]
  std::vector<TokenId> tokens_;  // [pages][page_size]
  std::vector<PageId> table_;    // open addressing, linear probing, at most half full, no tombstones
  size_t table_mask_;
  uint32_t size_ = 0;
  uint32_t evictable_ = 0;
  PageId oldest_ = kNoPage;
  PageId newest_ = kNoPage;
};

}  // namespace headwater::kv
