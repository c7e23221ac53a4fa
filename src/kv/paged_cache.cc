#include "kv/paged_cache.h"

#include <algorithm>
#include <new>

#include "kv/page_pool.h"
#include "kv/prefix_tree.h"

namespace headwater::kv {

struct Sequence {
  Salt salt;
  uint64_t version = 0;
  uint32_t pages = 0;      // length of its page list
  uint32_t published = 0;  // its first pages, all in the tree
  bool open = false;
};

struct PagedCache::Impl {
  explicit Impl(const CacheConfig& settings)
      : config(settings),
        pool(settings.pages),
        tree({settings.pages, settings.page_size, {settings.hash_key[0], settings.hash_key[1]}}),
        sequences(settings.sequences_max),
        slots_free(settings.sequences_max),
        lists(size_t{settings.sequences_max} * settings.pages_per_sequence_max, kNoPage) {
    for (uint32_t i = 0; i < settings.sequences_max; ++i) slots_free[i] = settings.sequences_max - 1 - i;
  }

  Sequence& sequence(SequenceSlot slot) {
    check(slot < sequences.size() && sequences[slot].open, "the sequence slot is not open");
    return sequences[slot];
  }
  PageId* list(SequenceSlot slot) { return lists.data() + size_t{slot} * config.pages_per_sequence_max; }
  uint32_t pages_for(uint32_t tokens) const { return tokens / config.page_size + (tokens % config.page_size != 0); }
  std::span<const TokenId> tokens_of(std::span<const TokenId> tokens, uint32_t index) const {
    return tokens.subspan(size_t{index} * config.page_size, config.page_size);
  }
  uint32_t holders(PageId page) const { return pool.count(page) - tree.contains(page); }  // sequences that list it

  SequenceSlot open_slot(const Salt& salt) {
    const SequenceSlot slot = slots_free.back();
    slots_free.pop_back();
    sequences[slot] = {.salt = salt, .version = ++version_last, .open = true};
    return slot;
  }

  PageId take() {
    ++pages_held;
    ++counters.pages_allocated;
    return pool.take();
  }

  void hold(PageId page) {
    if (holders(page) == 0) {
      ++pages_held;
      tree.hold(page);
    }
    pool.retain(page);
  }

  void release(PageId page) {
    if (holders(page) == 1) {
      --pages_held;
      if (tree.contains(page)) tree.unhold(page);
    }
    pool.release(page);
  }

  bool evict_one() {
    const PageId page = tree.evict_oldest();
    if (page == kNoPage) return false;
    check(pool.release(page), "an evicted page still has holders");
    ++counters.pages_evicted;
    return true;
  }

  void truncate(SequenceSlot slot, uint32_t pages) {
    Sequence& s = sequence(slot);
    while (s.pages > pages) release(list(slot)[--s.pages]);
  }

  Status audit_sequences(std::vector<uint32_t>& listed) const;

  CacheConfig config;
  PagePool pool;
  PrefixTree tree;
  std::vector<Sequence> sequences;       // [sequences_max]
  std::vector<SequenceSlot> slots_free;  // a stack that never grows
  std::vector<PageId> lists;             // [sequences_max][pages_per_sequence_max]
  uint32_t pages_held = 0;
  uint64_t version_last = 0;
  CacheCounters counters;
};

PagedCache::PagedCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PagedCache::PagedCache(PagedCache&&) noexcept = default;
PagedCache& PagedCache::operator=(PagedCache&&) noexcept = default;
PagedCache::~PagedCache() = default;

Result<PagedCache> PagedCache::create(const CacheConfig& config) {
  constexpr uint32_t kPagesMax = uint32_t{1} << 31;
  if (config.pages == 0 || config.pages > kPagesMax) {
    return error(ErrorCode::kInvalidArgument, "{} pages asked for; use 1 to {}", config.pages, kPagesMax);
  }
  if (config.page_size == 0 || config.sequences_max == 0 || config.pages_per_sequence_max == 0) {
    return error(ErrorCode::kInvalidArgument,
                 "page_size {}, sequences_max {} and pages_per_sequence_max {} must each be at least 1",
                 config.page_size, config.sequences_max, config.pages_per_sequence_max);
  }
  try {
    return PagedCache(std::make_unique<Impl>(config));
  } catch (const std::exception&) {  // bad_alloc, or a length no vector can have
    return error(ErrorCode::kExhausted,
                 "no host memory for the tables of {} pages of {} tokens and {} sequences of {} pages; ask for fewer",
                 config.pages, config.page_size, config.sequences_max, config.pages_per_sequence_max);
  }
}

const CacheConfig& PagedCache::config() const {
  return impl_->config;
}
uint32_t PagedCache::pages_free() const {
  return impl_->pool.pages_free();
}
uint32_t PagedCache::pages_cached() const {
  return impl_->config.pages - pages_free() - pages_held();
}
uint32_t PagedCache::pages_held() const {
  return impl_->pages_held;
}
uint32_t PagedCache::pages_available() const {
  return pages_free() + impl_->tree.evictable();
}
uint32_t PagedCache::sequences_open() const {
  return impl_->config.sequences_max - static_cast<uint32_t>(impl_->slots_free.size());
}
uint32_t PagedCache::reference_count(PageId page) const {
  return impl_->pool.count(page);
}
const CacheCounters& PagedCache::counters() const {
  return impl_->counters;
}
uint64_t PagedCache::version(SequenceSlot slot) const {
  return impl_->sequence(slot).version;
}
std::span<const PageId> PagedCache::pages(SequenceSlot slot) const {
  return {impl_->list(slot), impl_->sequence(slot).pages};
}

PrefixMatch PagedCache::match(std::span<const TokenId> tokens, const Salt& salt) const {
  PrefixMatch match;
  const PrefixTree& tree = impl_->tree;
  const uint32_t pages =
      tree.walk(tokens, salt, [&](PageId page) { match.pages_evictable += tree.is_evictable(page); });
  match.tokens = pages * impl_->config.page_size;
  return match;
}

Result<SequenceSlot> PagedCache::open(const Salt& salt) {
  if (impl_->slots_free.empty()) {
    return error(ErrorCode::kExhausted, "all {} sequences are open; close one or raise sequences_max",
                 impl_->config.sequences_max);
  }
  return impl_->open_slot(salt);
}

uint32_t PagedCache::attach_prefix(SequenceSlot slot, std::span<const TokenId> tokens, uint32_t tokens_max) {
  Impl& s = *impl_;
  Sequence& sequence = s.sequence(slot);
  check(sequence.pages == 0, "a prefix can only be attached to an empty sequence");
  const size_t tokens_fit = size_t{s.config.pages_per_sequence_max} * s.config.page_size;
  s.tree.walk(tokens.first(std::min({tokens.size(), size_t{tokens_max}, tokens_fit})), sequence.salt, [&](PageId page) {
    s.hold(page);
    s.list(slot)[sequence.pages++] = page;
  });
  sequence.published = sequence.pages;
  return sequence.pages * s.config.page_size;
}

Status PagedCache::reserve(SequenceSlot slot, uint32_t tokens_written, uint32_t tokens_total,
                           std::vector<PageCopy>& copies) {
  Impl& s = *impl_;
  Sequence& sequence = s.sequence(slot);
  PageId* const list = s.list(slot);
  const uint32_t pages_total = s.pages_for(tokens_total);
  const uint32_t first = tokens_written / s.config.page_size;  // pages [first, last) of the list get writable
  const uint32_t last = std::min(sequence.pages, std::max(pages_total, first + 1));
  check(tokens_written <= tokens_total, "more tokens written than in total");
  check(first >= sequence.published, "a published page would be written; trim() first");
  if (pages_total > s.config.pages_per_sequence_max) {
    return error(ErrorCode::kInvalidArgument,
                 "{} tokens need {} pages, a sequence holds at most {}; shorten it or raise "
                 "pages_per_sequence_max",
                 tokens_total, pages_total, s.config.pages_per_sequence_max);
  }
  uint32_t pages_needed = pages_total > sequence.pages ? pages_total - sequence.pages : 0;
  for (uint32_t i = first; i < last; ++i) pages_needed += s.pool.count(list[i]) > 1;
  if (pages_needed > pages_available()) {
    return error(ErrorCode::kExhausted,
                 "{} pages needed, {} of {} available; close or trim a sequence, or unpin a prefix", pages_needed,
                 pages_available(), s.config.pages);
  }
  // Evict first: a shared page given back below may become the tree's alone, and must outlive the copy made of it.
  while (s.pool.pages_free() < pages_needed) check(s.evict_one(), "fewer pages were available than promised");
  for (uint32_t i = first; i < last; ++i) {
    const PageId from = list[i];
    if (s.pool.count(from) == 1) continue;
    list[i] = s.take();
    if (i == first && tokens_written % s.config.page_size != 0) {
      copies.push_back({from, list[i]});
      ++s.counters.pages_copied;
    }
    s.release(from);
    sequence.version = ++s.version_last;
  }
  while (sequence.pages < pages_total) list[sequence.pages++] = s.take();
  return {};
}

Result<SequenceSlot> PagedCache::fork(SequenceSlot parent) {
  Impl& s = *impl_;
  const Sequence& from = s.sequence(parent);
  HEADWATER_ASSIGN_OR_RETURN(const SequenceSlot slot, open(from.salt));
  Sequence& to = s.sequence(slot);
  for (; to.pages < from.pages; ++to.pages) {
    const PageId page = s.list(parent)[to.pages];
    s.hold(page);
    s.list(slot)[to.pages] = page;
  }
  to.published = from.published;
  ++s.counters.forks;
  return slot;
}

void PagedCache::publish(SequenceSlot slot, std::span<const TokenId> tokens, uint32_t tokens_computed) {
  Impl& s = *impl_;
  Sequence& sequence = s.sequence(slot);
  if (!s.config.prefix_cache) return;
  const uint32_t pages_computed = tokens_computed / s.config.page_size;
  check(tokens_computed <= tokens.size(), "more tokens computed than given");
  check(pages_computed <= sequence.pages, "tokens computed beyond the pages of the sequence");
  PageId* const list = s.list(slot);
  for (uint32_t& i = sequence.published; i < pages_computed; ++i) {
    const PageId own = list[i];
    const bool in_tree = s.tree.contains(own);  // a fork published it first
    const PageId kept = s.tree.insert(own, i == 0 ? kNoPage : list[i - 1], sequence.salt, s.tokens_of(tokens, i));
    if (kept != own) {
      s.hold(kept);
      list[i] = kept;
      s.release(own);
      ++s.counters.pages_merged;
      sequence.version = ++s.version_last;
    } else if (!in_tree) {
      s.pool.retain(own);
    }
  }
}

void PagedCache::trim(SequenceSlot slot, uint32_t tokens) {
  Impl& s = *impl_;
  Sequence& sequence = s.sequence(slot);
  if (s.pages_for(tokens) < sequence.pages) {
    s.truncate(slot, s.pages_for(tokens));
    sequence.version = ++s.version_last;
  }
  sequence.published = std::min(sequence.published, tokens / s.config.page_size);
}

void PagedCache::close(SequenceSlot slot) {
  Impl& s = *impl_;
  s.truncate(slot, 0);
  s.sequence(slot).open = false;
  s.slots_free.push_back(slot);
}

uint32_t PagedCache::pin(std::span<const TokenId> tokens, const Salt& salt) {
  PrefixTree& tree = impl_->tree;
  return impl_->config.page_size * tree.walk(tokens, salt, [&](PageId page) { tree.pin(page); });
}

void PagedCache::unpin(std::span<const TokenId> tokens, const Salt& salt) {
  PrefixTree& tree = impl_->tree;
  tree.walk(tokens, salt, [&](PageId page) {
    if (tree.pins(page) > 0) tree.unpin(page);
  });
}

uint32_t PagedCache::evict(uint32_t pages) {
  uint32_t evicted = 0;
  while (evicted < pages && impl_->evict_one()) ++evicted;
  return evicted;
}

void PagedCache::drop_prefixes() {
  evict(impl_->config.pages);
}

Status PagedCache::Impl::audit_sequences(std::vector<uint32_t>& listed) const {
  uint32_t open = 0;
  for (SequenceSlot slot = 0; slot < sequences.size(); ++slot) {
    const Sequence& sequence = sequences[slot];
    if (!sequence.open) continue;
    ++open;
    const PageId* const list = lists.data() + size_t{slot} * config.pages_per_sequence_max;
    for (uint32_t i = 0; i < sequence.pages; ++i) {
      if (list[i] >= config.pages) return error(ErrorCode::kInternal, "sequence {} lists page {}", slot, list[i]);
      ++listed[list[i]];
      if (i < sequence.published && !tree.contains(list[i])) {
        return error(ErrorCode::kInternal, "published page {} of sequence {} is not in the tree", list[i], slot);
      }
    }
    if (sequence.published > sequence.pages || sequence.version > version_last) {
      return error(ErrorCode::kInternal, "sequence {} has {} pages, {} published, version {}", slot, sequence.pages,
                   sequence.published, sequence.version);
    }
  }
  if (open + slots_free.size() != sequences.size()) {
    return error(ErrorCode::kInternal, "{} sequences open and {} slots free of {}", open, slots_free.size(),
                 sequences.size());
  }
  return {};
}

Status PagedCache::audit() const {
  const Impl& s = *impl_;
  HEADWATER_RETURN_IF_ERROR(s.pool.audit());
  HEADWATER_RETURN_IF_ERROR(s.tree.audit());
  std::vector<uint32_t> listed(s.config.pages, 0);  // sequences that list the page
  HEADWATER_RETURN_IF_ERROR(s.audit_sequences(listed));
  uint32_t held = 0;
  uint32_t cached = 0;
  for (PageId page = 0; page < s.config.pages; ++page) {
    const bool in_tree = s.tree.contains(page);
    held += listed[page] > 0;
    cached += in_tree && listed[page] == 0;
    if (s.pool.count(page) != listed[page] + in_tree) {
      return error(ErrorCode::kInternal, "page {} has count {} but {} sequences list it and the tree {} it", page,
                   s.pool.count(page), listed[page], in_tree ? "holds" : "does not hold");
    }
    if (in_tree && s.tree.is_held(page) != (listed[page] > 0)) {
      return error(ErrorCode::kInternal, "page {} is listed {} times, which the tree does not know", page,
                   listed[page]);
    }
  }
  if (held != pages_held() || cached != pages_cached() || pages_free() + cached + held != s.config.pages) {
    return error(ErrorCode::kInternal, "{} free + {} cached + {} held pages are not {}", pages_free(), cached, held,
                 s.config.pages);
  }
  return {};
}

}  // namespace headwater::kv
