// Door of the room: the paged KV cache as the host sees it. Pages, who holds them, and which prefix they hold.
//
//   sequence slots          pool (reference counts)             prefix tree
//   [0] p3 p7 p9 .  ----->  p3:2  p7:2  p9:1  ...  <-----  root -> p3 -> p7
//   [1] p3 p7 p4 .                                              (full pages only, by their tokens)
//
// Only ids live here; the bytes of a page belong to the back end. Everything is sized by create(): no call below
// allocates from the heap (the text of an error and audit() aside). One thread (the engine's) owns a PagedCache; const
// methods may not run beside the others.
//
// Invariants, checked by audit():
//   1. pages_free + pages_cached + pages_held = pages; held = in at least one sequence, cached = only in the tree.
//   2. The pool's count of each page equals the sequences that list it plus one if the tree holds it.
//   3. Page i of a sequence holds its tokens [i * page_size, (i + 1) * page_size); pages beyond its length are
//   reserved.
//   4. A page in the tree is full, computed, and never written again. Nor is a page with more than one holder:
//      reserve() replaces a shared partial page by a fresh one and lists the copy (copy on write).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/core.h"
#include "kv/salt.h"

namespace headwater::kv {

inline constexpr uint32_t kPageSizeDefault = 32;

using SequenceSlot = uint32_t;  // index of a sequence inside one PagedCache, re-used after close()

struct CacheConfig {
  uint32_t pages = 0;
  uint32_t page_size = kPageSizeDefault;  // tokens a page; >= 1
  uint32_t sequences_max = 0;
  uint32_t pages_per_sequence_max = 0;
  bool prefix_cache = true;       // false: publish() and match do nothing
  uint64_t hash_key[2] = {0, 0};  // secret key of the tree's SipHash; a fresh random one per process in production
};

// The back end must copy all layers of `from` to `to` before the step writes, in the order listed: where a later
// reserve() evicted `from`, a later copy may fill it.
struct PageCopy {
  PageId from;
  PageId to;
};

struct PrefixMatch {
  uint32_t tokens = 0;           // longest cached prefix, a multiple of page_size
  uint32_t pages_evictable = 0;  // of those pages, how many count in pages_available() now
};

struct CacheCounters {  // since create()
  uint64_t pages_allocated = 0;
  uint64_t pages_evicted = 0;
  uint64_t pages_merged = 0;  // duplicates replaced at publish()
  uint64_t pages_copied = 0;  // copies on write
  uint64_t forks = 0;
};

class PagedCache {
 public:
  static Result<PagedCache> create(const CacheConfig& config);
  PagedCache(PagedCache&&) noexcept;
  PagedCache& operator=(PagedCache&&) noexcept;
  ~PagedCache();

  // Capacity, for the scheduler.
  const CacheConfig& config() const;
  uint32_t pages_free() const;       // held by nobody
  uint32_t pages_cached() const;     // held by the tree alone; evictable unless pinned
  uint32_t pages_held() const;       // in at least one sequence
  uint32_t pages_available() const;  // free plus evictable: exactly what reserve() can still hand out, in O(1)
  uint32_t sequences_open() const;
  PrefixMatch match(std::span<const TokenId> tokens, const Salt& salt) const;  // touches nothing, not even LRU order

  // Sequences.
  Result<SequenceSlot> open(const Salt& salt);  // kExhausted: no slot left
  // Appends the longest cached prefix of `tokens`, at most tokens_max of them (rounded down to whole pages), to an
  // empty sequence; returns the tokens it now holds. Refreshes their LRU age.
  uint32_t attach_prefix(SequenceSlot slot, std::span<const TokenId> tokens, uint32_t tokens_max);
  // Makes room for tokens_total tokens, evicting least recently used cached pages as needed, and makes the page that
  // token `tokens_written` falls into writable, and all pages behind it up to tokens_total. At most one copy is
  // appended to `copies` (the caller reserves its capacity): the first of these pages, where it is shared and partly
  // written; later shared ones are replaced without a copy. Never evicts a pinned page or one a sequence holds. All or
  // nothing; errors: kExhausted (too few pages available now) and kInvalidArgument (more than pages_per_sequence_max:
  // never possible). To write below a token that was published, trim() first.
  Status reserve(SequenceSlot slot, uint32_t tokens_written, uint32_t tokens_total, std::vector<PageCopy>& copies);
  Result<SequenceSlot> fork(SequenceSlot parent);  // shares every page; kExhausted: no slot left
  // Publishes the full pages among the first tokens_computed of `tokens` (the sequence's own tokens from position 0)
  // that are not published yet. Where the tree already holds an identical page (same parent, same tokens, compared
  // token by token) the sequence takes that one and gives its own back. Idempotent; resumes where the last call ended.
  void publish(SequenceSlot slot, std::span<const TokenId> tokens, uint32_t tokens_computed);
  void trim(SequenceSlot slot, uint32_t tokens);  // gives back pages beyond those that hold `tokens`
  void close(SequenceSlot slot);
  std::span<const PageId> pages(SequenceSlot slot) const;
  // Changes whenever a page id already in the list is replaced or removed, and is never re-used for another sequence:
  // equal versions promise that the shorter list is a prefix of the longer one.
  uint64_t version(SequenceSlot slot) const;

  // Cached prefixes.
  uint32_t pin(std::span<const TokenId> tokens, const Salt& salt);  // returns the tokens now pinned (counted, nestable)
  void unpin(std::span<const TokenId> tokens, const Salt& salt);    // pass the tokens that pin() said were pinned
  uint32_t evict(uint32_t pages);                                   // least recently used first; returns how many went
  void drop_prefixes();                                             // evicts all that is neither held nor pinned

  uint32_t reference_count(PageId page) const;
  const CacheCounters& counters() const;
  Status audit() const;  // kInternal names the first broken invariant; O(pages); may allocate

 private:
  struct Impl;
  explicit PagedCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::kv
