#include "kv/paged_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace headwater::kv {
namespace {

using Tokens = std::vector<TokenId>;

Tokens count_up(uint32_t tokens, TokenId first = 0) {
  Tokens prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

class PagedCacheTest : public testing::Test {  // pages of 4 tokens; audited after each test
 protected:
  void use(CacheConfig config) { cache = std::move(PagedCache::create(config).value()); }
  void TearDown() override { EXPECT_TRUE(cache.audit()) << cache.audit().message(); }

  SequenceSlot open(const Salt& salt = {}) { return cache.open(salt).value(); }
  Status reserve(SequenceSlot slot, uint32_t written, uint32_t total) {
    copies.clear();
    return cache.reserve(slot, written, total, copies);
  }
  SequenceSlot run(const Tokens& prompt, const Salt& salt = {}) {  // opens, computes and publishes all of `prompt`
    const SequenceSlot slot = open(salt);
    const uint32_t tokens = static_cast<uint32_t>(prompt.size());
    const uint32_t attached = cache.attach_prefix(slot, prompt, tokens);
    EXPECT_TRUE(reserve(slot, attached, tokens));
    cache.publish(slot, prompt, tokens);
    return slot;
  }
  Tokens page_ids(SequenceSlot slot) const { return {cache.pages(slot).begin(), cache.pages(slot).end()}; }

  static constexpr CacheConfig kConfig = {
      .pages = 8, .page_size = 4, .sequences_max = 4, .pages_per_sequence_max = 6, .hash_key = {1, 2}};
  PagedCache cache = std::move(PagedCache::create(kConfig).value());
  std::vector<PageCopy> copies;
};

TEST_F(PagedCacheTest, RefusesAConfigurationOfNothing) {
  for (uint32_t CacheConfig::*field : {&CacheConfig::pages, &CacheConfig::page_size, &CacheConfig::sequences_max,
                                       &CacheConfig::pages_per_sequence_max}) {
    CacheConfig config = kConfig;
    config.*field = 0;
    EXPECT_EQ(PagedCache::create(config).status().code(), ErrorCode::kInvalidArgument);
  }
  CacheConfig config = kConfig;
  config.pages = 0xffffffffu;
  EXPECT_EQ(PagedCache::create(config).status().code(), ErrorCode::kInvalidArgument);
}

TEST_F(PagedCacheTest, ASequenceLivesFromOpenToClose) {
  const SequenceSlot slot = open();
  EXPECT_EQ(cache.sequences_open(), 1u);
  ASSERT_TRUE(reserve(slot, 0, 9));
  EXPECT_EQ(cache.pages(slot).size(), 3u);
  EXPECT_EQ(cache.pages_held(), 3u);
  EXPECT_EQ(cache.pages_available(), 5u);
  ASSERT_TRUE(reserve(slot, 9, 10));  // fits
  EXPECT_EQ(cache.pages(slot).size(), 3u);
  cache.publish(slot, count_up(10), 10);
  EXPECT_EQ(cache.reference_count(cache.pages(slot)[0]), 2u);
  EXPECT_EQ(cache.reference_count(cache.pages(slot)[2]), 1u);  // not full
  cache.close(slot);
  EXPECT_EQ(cache.pages_held(), 0u);
  EXPECT_EQ(cache.pages_cached(), 2u);
  EXPECT_EQ(cache.pages_free(), 6u);
  EXPECT_EQ(cache.pages_available(), 8u);
}

TEST_F(PagedCacheTest, AttachesTheLongestCachedPrefixWithinTheLimit) {
  const Tokens prompt = count_up(12);
  const SequenceSlot first = run(prompt);
  const SequenceSlot second = open();
  EXPECT_EQ(cache.match(prompt, {}).tokens, 12u);
  EXPECT_EQ(cache.attach_prefix(second, prompt, 11), 8u);  // fully cached, but the last token must be computed
  EXPECT_TRUE(std::ranges::equal(cache.pages(second), cache.pages(first).first(2)));
  EXPECT_EQ(cache.reference_count(cache.pages(first)[0]), 3u);
  EXPECT_EQ(cache.reference_count(cache.pages(first)[2]), 2u);
}

TEST_F(PagedCacheTest, MatchCountsThePagesThatOnlyTheTreeHolds) {
  const Tokens prompt = count_up(12);
  const SequenceSlot slot = run(prompt);
  EXPECT_EQ(cache.match(prompt, {}).pages_evictable, 0u);
  cache.trim(slot, 4);
  EXPECT_EQ(cache.match(prompt, {}).tokens, 12u);
  EXPECT_EQ(cache.match(prompt, {}).pages_evictable, 2u);
  cache.close(slot);
  EXPECT_EQ(cache.match(prompt, {}).pages_evictable, 3u);
  EXPECT_EQ(cache.match(count_up(12, 1), {}).tokens, 0u);
}

TEST_F(PagedCacheTest, TwoSaltsNeverShare) {
  const Tokens prompt = count_up(8);
  run(prompt, make_salt("a"));
  EXPECT_EQ(cache.match(prompt, make_salt("b")).tokens, 0u);
  const SequenceSlot other = open(make_salt("b"));
  EXPECT_EQ(cache.attach_prefix(other, prompt, 8), 0u);
  ASSERT_TRUE(reserve(other, 0, 8));
  cache.publish(other, prompt, 8);
  EXPECT_EQ(cache.counters().pages_merged, 0u);
  EXPECT_EQ(cache.pages_held(), 4u);
}

TEST_F(PagedCacheTest, APromptShorterThanAPageCachesNothing) {
  cache.close(run(count_up(3)));
  EXPECT_EQ(cache.pages_cached(), 0u);
  EXPECT_EQ(cache.pages_free(), 8u);
}

TEST_F(PagedCacheTest, ReserveIsAllOrNothing) {
  const SequenceSlot a = open();
  const SequenceSlot b = open();
  ASSERT_TRUE(reserve(a, 0, 24));
  ASSERT_TRUE(reserve(b, 0, 4));
  const uint64_t version = cache.version(b);
  const Status status = reserve(b, 4, 13);
  EXPECT_EQ(status.code(), ErrorCode::kExhausted);
  EXPECT_EQ(status.message(), "3 pages needed, 1 of 8 available; close or trim a sequence, or unpin a prefix");
  EXPECT_EQ(cache.pages(b).size(), 1u);
  EXPECT_EQ(cache.pages_free(), 1u);
  EXPECT_EQ(cache.version(b), version);
  EXPECT_EQ(reserve(b, 4, 25).code(), ErrorCode::kInvalidArgument);  // 7 pages, a sequence holds 6
  EXPECT_TRUE(reserve(b, 4, 8));
}

TEST_F(PagedCacheTest, ReserveEvictsTheLeastRecentlyUsedCachedPages) {
  const Tokens old_prompt = count_up(8, 100), new_prompt = count_up(8, 200);
  cache.close(run(old_prompt));
  cache.close(run(new_prompt));
  cache.close(run(old_prompt));  // used again: now the younger one
  const SequenceSlot slot = open();
  ASSERT_TRUE(reserve(slot, 0, 24));  // 4 free, 2 evicted
  EXPECT_EQ(cache.match(old_prompt, {}).tokens, 8u);
  EXPECT_EQ(cache.match(new_prompt, {}).tokens, 0u);
  EXPECT_EQ(cache.counters().pages_evicted, 2u);
}

TEST_F(PagedCacheTest, PinnedPrefixesOutliveEveryPressure) {
  const Tokens prompt = count_up(16);
  cache.close(run(prompt));
  EXPECT_EQ(cache.pin(count_up(9), {}), 8u);
  EXPECT_EQ(cache.pin(prompt, {}), 16u);  // nests
  EXPECT_EQ(cache.pages_available(), 4u);
  EXPECT_EQ(cache.evict(8), 0u);
  cache.unpin(prompt, {});
  EXPECT_EQ(cache.pages_available(), 6u);
  const SequenceSlot slot = open();
  EXPECT_EQ(reserve(slot, 0, 24).is_ok(), true);
  EXPECT_EQ(cache.match(prompt, {}).tokens, 8u);
  cache.close(slot);
  cache.drop_prefixes();
  EXPECT_EQ(cache.pages_cached(), 2u);
  cache.unpin(count_up(8), {});
  cache.drop_prefixes();
  EXPECT_EQ(cache.pages_free(), 8u);
}

TEST_F(PagedCacheTest, DropPrefixesKeepsWhatASequenceHolds) {
  const Tokens prompt = count_up(8);
  const SequenceSlot slot = run(prompt);
  cache.close(run(count_up(8, 50)));
  cache.drop_prefixes();
  EXPECT_EQ(cache.pages_cached(), 0u);
  EXPECT_EQ(cache.match(prompt, {}).tokens, 8u);
  EXPECT_EQ(cache.pages(slot).size(), 2u);
}

TEST_F(PagedCacheTest, AForkSharesAllPagesAndTheFirstWriterCopiesTheLastOne) {
  const SequenceSlot parent = open();
  ASSERT_TRUE(reserve(parent, 0, 6));
  const SequenceSlot child = cache.fork(parent).value();
  EXPECT_EQ(page_ids(child), page_ids(parent));
  EXPECT_NE(cache.version(child), cache.version(parent));
  const PageId shared = cache.pages(parent)[1];
  EXPECT_EQ(cache.reference_count(shared), 2u);

  const uint64_t version = cache.version(child);
  ASSERT_TRUE(reserve(child, 6, 7));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, shared);
  EXPECT_EQ(copies[0].to, cache.pages(child)[1]);
  EXPECT_NE(cache.version(child), version);

  ASSERT_TRUE(reserve(parent, 6, 7));  // the last holder writes in place
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.pages(parent)[1], shared);
  EXPECT_EQ(cache.reference_count(cache.pages(parent)[0]), 2u);
  EXPECT_EQ(cache.counters().pages_copied, 1u);
  EXPECT_EQ(cache.counters().forks, 1u);
}

TEST_F(PagedCacheTest, SharedPagesReservedAheadAreReplacedWithoutACopy) {
  const SequenceSlot parent = open();
  ASSERT_TRUE(reserve(parent, 0, 12));  // 5 written, 3 pages
  const SequenceSlot child = cache.fork(parent).value();
  ASSERT_TRUE(reserve(child, 5, 12));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, cache.pages(parent)[1]);
  EXPECT_EQ(cache.pages(child)[0], cache.pages(parent)[0]);
  EXPECT_NE(cache.pages(child)[2], cache.pages(parent)[2]);
}

TEST_F(PagedCacheTest, ACopyOnWriteThatFindsNoPageChangesNothing) {
  const SequenceSlot parent = open();
  ASSERT_TRUE(reserve(parent, 0, 22));
  ASSERT_TRUE(reserve(open(), 0, 8));
  const SequenceSlot child = cache.fork(parent).value();
  EXPECT_EQ(reserve(child, 22, 23).code(), ErrorCode::kExhausted);
  EXPECT_EQ(page_ids(child), page_ids(parent));
  cache.close(parent);
  EXPECT_TRUE(reserve(child, 22, 23));  // alone now
  EXPECT_TRUE(copies.empty());
}

TEST_F(PagedCacheTest, ASequenceTrimmedIntoAPublishedPageCopiesItBeforeWriting) {
  const SequenceSlot slot = run(count_up(8));
  const PageId published = cache.pages(slot)[1];
  cache.trim(slot, 6);
  EXPECT_EQ(cache.pages(slot)[1], published);
  ASSERT_TRUE(reserve(slot, 6, 8));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, published);
  EXPECT_EQ(cache.match(count_up(8), {}).pages_evictable, 1u);  // the tree's alone, still intact
  Tokens other = count_up(8);
  other[7] = 99;
  cache.publish(slot, other, 8);
  EXPECT_EQ(cache.match(other, {}).tokens, 8u);
  EXPECT_EQ(cache.match(count_up(8), {}).tokens, 8u);
}

TEST_F(PagedCacheTest, PublishMergesPagesThatTwoSequencesComputed) {
  const Tokens prompt = count_up(9);
  const SequenceSlot a = open();
  const SequenceSlot b = open();
  ASSERT_TRUE(reserve(a, 0, 9));
  ASSERT_TRUE(reserve(b, 0, 9));
  cache.publish(a, prompt, 9);
  const uint64_t version_a = cache.version(a);
  const uint64_t version_b = cache.version(b);
  cache.publish(b, prompt, 9);
  EXPECT_TRUE(std::ranges::equal(cache.pages(a).first(2), cache.pages(b).first(2)));
  EXPECT_NE(cache.pages(a)[2], cache.pages(b)[2]);
  EXPECT_EQ(cache.counters().pages_merged, 2u);
  EXPECT_EQ(cache.pages_held(), 4u);
  EXPECT_EQ(cache.version(a), version_a);
  EXPECT_NE(cache.version(b), version_b);
}

TEST_F(PagedCacheTest, ADuplicateIsFreedOnlyWhenNoPageListNamesIt) {
  const Tokens prompt = count_up(4);
  const SequenceSlot a = open();
  const SequenceSlot b = open();
  ASSERT_TRUE(reserve(a, 0, 4));
  ASSERT_TRUE(reserve(b, 0, 4));
  const SequenceSlot fork_of_b = cache.fork(b).value();
  cache.publish(a, prompt, 4);
  cache.publish(b, prompt, 4);
  EXPECT_EQ(cache.pages_free(), 6u);  // the fork still lists the duplicate
  cache.publish(fork_of_b, prompt, 4);
  EXPECT_EQ(cache.pages_free(), 7u);
}

// The fork lists a tree page whose parent it does not list: the parent is nobody's, yet cannot be evicted.
TEST_F(PagedCacheTest, TheParentOfAHeldPageIsNotAvailableThoughNoSequenceHoldsIt) {
  const Tokens prompt = count_up(8);
  const SequenceSlot a = open();
  const SequenceSlot b = open();
  ASSERT_TRUE(reserve(a, 0, 4));
  ASSERT_TRUE(reserve(b, 0, 8));
  cache.publish(a, prompt, 4);
  const SequenceSlot fork_of_b = cache.fork(b).value();
  cache.publish(b, prompt, 8);  // page 0 merges into a's, page 1 becomes its child
  cache.close(a);
  cache.close(b);
  EXPECT_EQ(cache.pages_cached(), 1u);
  EXPECT_EQ(cache.pages_available(), 5u);
  EXPECT_EQ(cache.pages_free(), 5u);
  EXPECT_EQ(cache.evict(8), 0u);
  cache.publish(fork_of_b, prompt, 8);
  EXPECT_EQ(cache.pages_held(), 2u);
}

TEST_F(PagedCacheTest, PublishIsIdempotentAndResumes) {
  const Tokens prompt = count_up(12);
  const SequenceSlot slot = open();
  ASSERT_TRUE(reserve(slot, 0, 12));
  cache.publish(slot, prompt, 5);
  EXPECT_EQ(cache.match(prompt, {}).tokens, 4u);
  cache.publish(slot, prompt, 5);
  cache.publish(slot, prompt, 12);
  EXPECT_EQ(cache.match(prompt, {}).tokens, 12u);
  EXPECT_EQ(cache.reference_count(cache.pages(slot)[0]), 2u);
}

TEST_F(PagedCacheTest, TrimGivesBackOnlyWhatNoTokenNeeds) {
  const SequenceSlot slot = open();
  ASSERT_TRUE(reserve(slot, 0, 20));
  uint64_t version = cache.version(slot);
  cache.trim(slot, 20);
  EXPECT_EQ(cache.version(slot), version);
  cache.trim(slot, 9);
  EXPECT_EQ(cache.pages(slot).size(), 3u);
  EXPECT_NE(cache.version(slot), version);
  cache.trim(slot, 0);
  EXPECT_EQ(cache.pages_free(), 8u);
}

TEST_F(PagedCacheTest, AppendingKeepsTheVersionAndASlotUsedAgainGetsANewOne) {
  const SequenceSlot slot = open();
  const uint64_t version = cache.version(slot);
  ASSERT_TRUE(reserve(slot, 0, 4));
  ASSERT_TRUE(reserve(slot, 4, 12));
  cache.publish(slot, count_up(12), 12);
  EXPECT_EQ(cache.version(slot), version);
  cache.close(slot);
  EXPECT_EQ(open(), slot);
  EXPECT_NE(cache.version(slot), version);
}

TEST_F(PagedCacheTest, SaysWhenNoSlotIsLeft) {
  for (int i = 0; i < 4; ++i) open();
  EXPECT_EQ(cache.open({}).status().code(), ErrorCode::kExhausted);
  EXPECT_EQ(cache.fork(0).status().code(), ErrorCode::kExhausted);
  EXPECT_EQ(cache.sequences_open(), 4u);
}

TEST_F(PagedCacheTest, WithoutAPrefixCacheNothingIsKept) {
  CacheConfig config = kConfig;
  config.prefix_cache = false;
  use(config);
  const Tokens prompt = count_up(8);
  const SequenceSlot slot = run(prompt);
  EXPECT_EQ(cache.match(prompt, {}).tokens, 0u);
  EXPECT_EQ(cache.pin(prompt, {}), 0u);
  cache.close(slot);
  EXPECT_EQ(cache.pages_free(), 8u);
}

TEST_F(PagedCacheTest, APoolOfPinnedPagesRefusesAndRecovers) {
  CacheConfig config = kConfig;
  config.pages = 4;
  use(config);
  const Tokens prompt = count_up(16);
  cache.close(run(prompt));
  EXPECT_EQ(cache.pin(prompt, {}), 16u);
  const SequenceSlot slot = open();
  EXPECT_EQ(reserve(slot, 0, 1).code(), ErrorCode::kExhausted);
  EXPECT_EQ(cache.pages_cached(), 4u);
  cache.unpin(prompt, {});
  EXPECT_TRUE(reserve(slot, 0, 1));
}

using PagedCacheDeathTest = PagedCacheTest;

TEST_F(PagedCacheDeathTest, StopsOnMisuse) {
  const SequenceSlot slot = run(count_up(8));
  EXPECT_DEATH(static_cast<void>(reserve(slot, 3, 8)), "trim\\(\\) first");
  EXPECT_DEATH(static_cast<void>(reserve(cache.fork(slot).value(), 3, 8)), "trim\\(\\) first");
  const SequenceSlot attached = open();
  cache.attach_prefix(attached, count_up(8), 4);
  EXPECT_DEATH(static_cast<void>(reserve(attached, 3, 8)), "trim\\(\\) first");
  EXPECT_DEATH(static_cast<void>(reserve(slot, 9, 8)), "more tokens written");
  EXPECT_DEATH(cache.attach_prefix(slot, count_up(4), 4), "empty sequence");
  EXPECT_DEATH(cache.publish(slot, count_up(12), 12), "beyond the pages");
  EXPECT_DEATH(cache.close(3), "not open");
}

}  // namespace
}  // namespace headwater::kv
