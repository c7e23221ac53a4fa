// Counts heap allocations of the whole test binary by replacing the global operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

#include "kv/paged_cache.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) {
  return operator new(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace headwater::kv {
namespace {

TEST(PagedCacheAllocation, TheCounterCounts) {
  const uint64_t before = allocations;
  delete new std::vector<int>(10);
  EXPECT_GE(allocations - before, 2u);
}

// One pass over every call, with merges, copies and evictions.
void use_every_call(PagedCache& cache, std::span<const TokenId> prompt, std::vector<PageCopy>& copies) {
  const auto tokens = static_cast<uint32_t>(prompt.size());
  const Salt salt = make_salt("tenant");
  copies.clear();
  const SequenceSlot a = *cache.open(salt);
  const SequenceSlot b = *cache.open(salt);
  check(cache.attach_prefix(a, prompt, tokens) == 0, "cold");
  check(cache.reserve(a, 0, tokens, copies).is_ok(), "room");
  check(cache.reserve(b, 0, tokens, copies).is_ok(), "room");
  cache.publish(a, prompt, tokens);
  cache.publish(b, prompt, tokens);
  const SequenceSlot c = *cache.fork(a);
  check(cache.reserve(c, tokens, tokens + 1, copies).is_ok() && copies.size() == 1, "copy on write");
  cache.trim(c, tokens / 2);
  check(cache.match(prompt, salt).tokens > 0 && cache.pin(prompt, salt) > 0, "cached");
  cache.close(a);
  cache.close(b);
  cache.close(c);
  cache.unpin(prompt, salt);
  const SequenceSlot d = *cache.open(salt);
  check(cache.attach_prefix(d, prompt, tokens) > 0, "warm");
  cache.close(d);
  const SequenceSlot e = *cache.open(salt);
  check(cache.reserve(e, 0, cache.config().pages * cache.config().page_size, copies).is_ok(), "all pages");
  check(cache.version(e) > 0 && cache.reference_count(cache.pages(e)[0]) == 1 && cache.sequences_open() == 1, "held");
  cache.close(e);
  check(cache.evict(1) == 0, "all evicted before");
  cache.drop_prefixes();
}

TEST(PagedCacheAllocation, NoCallAfterCreateAllocates) {
  auto cache = PagedCache::create({.pages = 24, .page_size = 4, .sequences_max = 8, .pages_per_sequence_max = 24});
  ASSERT_TRUE(cache);
  std::vector<TokenId> prompt(30);
  std::iota(prompt.begin(), prompt.end(), 0);
  std::vector<PageCopy> copies;
  copies.reserve(8);
  const uint64_t before = allocations;
  for (int i = 0; i < 100; ++i) use_every_call(*cache, prompt, copies);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(cache->counters().pages_copied, 100u);
  EXPECT_EQ(cache->counters().pages_merged, 700u);
  EXPECT_EQ(cache->counters().pages_evicted, 700u);
  EXPECT_TRUE(cache->audit());
}

}  // namespace
}  // namespace headwater::kv
