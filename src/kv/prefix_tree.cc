#include "kv/prefix_tree.h"

#include <algorithm>
#include <bit>

namespace headwater::kv {

Hash128 hash_page(const uint64_t (&key)[2], const Hash128& parent, std::span<const TokenId> tokens) {
  SipHash128 hash(key);
  hash.add(parent.low);
  hash.add(parent.high);
  return hash.finish(std::as_bytes(tokens));
}

PrefixTree::PrefixTree(const PrefixTreeConfig& config, PageHash hash)
    : page_size_(config.page_size),
      hash_key_{config.hash_key[0], config.hash_key[1]},
      hash_(hash),
      nodes_(config.pages),
      tokens_(size_t{config.pages} * config.page_size),
      table_(std::bit_ceil(size_t{config.pages} * 2), kNoPage),
      table_mask_(table_.size() - 1) {
  check(config.pages > 0 && config.page_size > 0, "a prefix tree needs pages and a page size");
}

std::span<const TokenId> PrefixTree::tokens_of(PageId page) const {
  return std::span(tokens_).subspan(size_t{page} * page_size_, page_size_);
}

Hash128 PrefixTree::hash_of(PageId parent, const Salt& salt, std::span<const TokenId> tokens) const {
  check(tokens.size() == page_size_, "a node holds one full page of tokens");
  check(parent == kNoPage || contains(parent), "the parent of a page is not in the tree");
  return hash_(hash_key_, parent == kNoPage ? Hash128{salt.low, salt.high} : nodes_[parent].hash, tokens);
}

PageId PrefixTree::lookup(const Hash128& hash, PageId parent, const Salt& salt, std::span<const TokenId> tokens) const {
  for (size_t slot = hash.low & table_mask_; table_[slot] != kNoPage; slot = (slot + 1) & table_mask_) {
    const PageId page = table_[slot];
    const Node& node = nodes_[page];
    if (node.hash == hash && node.parent == parent && (parent != kNoPage || node.salt == salt) &&
        std::ranges::equal(tokens_of(page), tokens)) {
      return page;
    }
  }
  return kNoPage;
}

PageId PrefixTree::find(PageId parent, const Salt& salt, std::span<const TokenId> tokens) const {
  return lookup(hash_of(parent, salt, tokens), parent, salt, tokens);
}

PageId PrefixTree::insert(PageId page, PageId parent, const Salt& salt, std::span<const TokenId> tokens) {
  const Hash128 hash = hash_of(parent, salt, tokens);
  const PageId present = lookup(hash, parent, salt, tokens);
  if (present != kNoPage) return present;
  check(!contains(page), "a page in the tree was published under other tokens");
  check(parent == kNoPage || nodes_[parent].protectors > 0, "a page was published under a parent nobody holds");
  nodes_[page] = {.hash = hash, .salt = salt, .parent = parent, .protectors = 1, .in_tree = true, .held = true};
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(size_t{page} * page_size_));
  table_add(page);
  ++size_;
  if (parent != kNoPage) {
    ++nodes_[parent].children;
    protect(parent);
  }
  return page;
}

void PrefixTree::hold(PageId page) {
  check(contains(page) && !nodes_[page].held, "hold: not in the tree, or held already");
  nodes_[page].held = true;
  protect(page);
}

void PrefixTree::unhold(PageId page) {
  check(contains(page) && nodes_[page].held, "unhold: not in the tree, or not held");
  nodes_[page].held = false;
  unprotect(page);
}

void PrefixTree::pin(PageId page) {
  check(contains(page), "pin: not in the tree");
  if (nodes_[page].pins++ == 0) protect(page);
}

void PrefixTree::unpin(PageId page) {
  check(contains(page) && nodes_[page].pins > 0, "unpin: not in the tree, or not pinned");
  if (--nodes_[page].pins == 0) unprotect(page);
}

PageId PrefixTree::evict_oldest() {
  const PageId page = oldest_;
  if (page == kNoPage) return kNoPage;
  Node& node = nodes_[page];
  check(node.children == 0, "the oldest page of the eviction list has children");
  list_remove(page);
  table_remove(page);
  if (node.parent != kNoPage) --nodes_[node.parent].children;
  node.in_tree = false;
  --size_;
  return page;
}

void PrefixTree::protect(PageId page) {
  while (page != kNoPage && nodes_[page].protectors++ == 0) {
    list_remove(page);
    page = nodes_[page].parent;
  }
}

void PrefixTree::unprotect(PageId page) {
  while (page != kNoPage && --nodes_[page].protectors == 0) {
    list_push_newest(page);
    page = nodes_[page].parent;
  }
}

void PrefixTree::list_push_newest(PageId page) {
  nodes_[page].older = newest_;
  nodes_[page].newer = kNoPage;
  (newest_ == kNoPage ? oldest_ : nodes_[newest_].newer) = page;
  newest_ = page;
  ++evictable_;
}

void PrefixTree::list_remove(PageId page) {
  const Node& node = nodes_[page];
  (node.older == kNoPage ? oldest_ : nodes_[node.older].newer) = node.newer;
  (node.newer == kNoPage ? newest_ : nodes_[node.newer].older) = node.older;
  --evictable_;
}

void PrefixTree::table_add(PageId page) {
  size_t slot = home(page);
  while (table_[slot] != kNoPage) slot = (slot + 1) & table_mask_;
  table_[slot] = page;
}

// Closes the gap by moving later entries of the probe sequence back (Knuth, TAOCP 3, 6.4, algorithm R).
void PrefixTree::table_remove(PageId page) {
  size_t gap = home(page);
  while (table_[gap] != page) {
    check(table_[gap] != kNoPage, "a page of the tree is not in its table");
    gap = (gap + 1) & table_mask_;
  }
  for (size_t slot = (gap + 1) & table_mask_; table_[slot] != kNoPage; slot = (slot + 1) & table_mask_) {
    const size_t distance_home = (slot - home(table_[slot])) & table_mask_;
    const size_t distance_gap = (slot - gap) & table_mask_;
    if (distance_home < distance_gap) continue;
    table_[gap] = table_[slot];
    gap = slot;
  }
  table_[gap] = kNoPage;
}

Status PrefixTree::audit() const {
  std::vector<uint32_t> children(nodes_.size(), 0);
  std::vector<uint32_t> protectors(nodes_.size(), 0);
  uint32_t size = 0;
  for (PageId page = 0; page < nodes_.size(); ++page) {
    const Node& node = nodes_[page];
    if (!node.in_tree) continue;
    ++size;
    protectors[page] += node.held + (node.pins > 0);
    if (node.parent != kNoPage) {
      if (!contains(node.parent)) {
        return error(ErrorCode::kInternal, "parent {} of page {} is not in the tree", node.parent, page);
      }
      ++children[node.parent];
      protectors[node.parent] += node.protectors > 0;
    }
    if (find(node.parent, node.salt, tokens_of(page)) != page) {
      return error(ErrorCode::kInternal, "page {} is not found by its own tokens", page);
    }
  }
  const auto entries =
      static_cast<uint32_t>(std::ranges::count_if(table_, [](PageId page) { return page != kNoPage; }));
  if (size != size_ || entries != size_) {
    return error(ErrorCode::kInternal, "the tree counts {} pages, holds {}, and its table {}", size_, size, entries);
  }
  for (PageId page = 0; page < nodes_.size(); ++page) {
    const Node& node = nodes_[page];
    if (!node.in_tree) continue;
    if (node.children != children[page] || node.protectors != protectors[page]) {
      return error(ErrorCode::kInternal, "page {} counts {} children and {} protectors but has {} and {}", page,
                   node.children, node.protectors, children[page], protectors[page]);
    }
  }
  return audit_list();
}

Status PrefixTree::audit_list() const {
  std::vector<bool> passed(nodes_.size(), false);
  uint32_t length = 0;
  for (PageId page = oldest_; page != kNoPage; page = nodes_[page].newer) {
    const Node& node = nodes_[page];
    if (!is_evictable(page) || passed[page]) {
      return error(ErrorCode::kInternal, "page {} is in the eviction list but protected or listed twice", page);
    }
    if (node.parent != kNoPage && passed[node.parent]) {
      return error(ErrorCode::kInternal, "page {} stands behind its parent {} in the eviction list", page, node.parent);
    }
    passed[page] = true;
    ++length;
  }
  uint32_t unprotected = 0;
  for (PageId page = 0; page < nodes_.size(); ++page) unprotected += is_evictable(page);
  if (length != evictable_ || unprotected != evictable_) {
    return error(ErrorCode::kInternal, "{} evictable pages counted, {} listed, {} found", evictable_, length,
                 unprotected);
  }
  return {};
}

}  // namespace headwater::kv
