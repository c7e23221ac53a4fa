#include <gtest/gtest.h>

#include "kv/paged_cache_exercise.h"

namespace headwater::kv {
namespace {

constexpr int kOperations = 20000;

class PagedCacheProperty : public testing::TestWithParam<uint32_t> {};

TEST_P(PagedCacheProperty, BehavesAsItsModelUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Random random(seed);
    CacheExercise exercise({.pages = 16, .page_size = GetParam(), .sequences_max = 5, .pages_per_sequence_max = 7},
                           [&](uint32_t bound) { return random.below(bound); });
    for (int i = 0; i < kOperations; ++i) {
      ASSERT_EQ(exercise.step(), "") << "page size " << GetParam() << ", seed " << seed << ", operation " << i;
    }
    const CacheCounters& counters = exercise.cache().counters();  // the run went everywhere
    EXPECT_GT(counters.pages_evicted, 500u);
    EXPECT_GT(counters.pages_merged, 100u);
    EXPECT_GT(counters.forks, 100u);
    if (GetParam() > 1) {
      EXPECT_GT(counters.pages_copied, 100u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, PagedCacheProperty, testing::Values(1u, 2u, 16u, 32u));

}  // namespace
}  // namespace headwater::kv
