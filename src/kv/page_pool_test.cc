#include "kv/page_pool.h"

#include <gtest/gtest.h>

namespace headwater::kv {
namespace {

TEST(PagePool, HandsOutEveryPageOnceAndTakesThemBack) {
  PagePool pool(3);
  EXPECT_EQ(pool.take(), 0u);
  EXPECT_EQ(pool.take(), 1u);
  EXPECT_EQ(pool.take(), 2u);
  EXPECT_EQ(pool.pages_free(), 0u);
  EXPECT_TRUE(pool.release(1));
  EXPECT_EQ(pool.pages_free(), 1u);
  EXPECT_EQ(pool.take(), 1u);
  EXPECT_TRUE(pool.audit());
}

TEST(PagePool, FreesAPageWithItsLastHolderOnly) {
  PagePool pool(2);
  const PageId page = pool.take();
  pool.retain(page);
  pool.retain(page);
  EXPECT_EQ(pool.count(page), 3u);
  EXPECT_FALSE(pool.release(page));
  EXPECT_FALSE(pool.release(page));
  EXPECT_TRUE(pool.release(page));
  EXPECT_EQ(pool.count(page), 0u);
  EXPECT_TRUE(pool.audit());
}

TEST(PagePoolDeathTest, StopsWhereAPageIsMishandled) {
  PagePool pool(1);
  EXPECT_DEATH(pool.retain(0), "a free page was retained");
  EXPECT_DEATH(pool.release(0), "a free page was released");
  EXPECT_DEATH(pool.count(1), "no such page");
  pool.take();
  EXPECT_DEATH(pool.take(), "empty pool");
}

}  // namespace
}  // namespace headwater::kv
