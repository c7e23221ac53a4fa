#include "server/key_store.h"

#include <gtest/gtest.h>

namespace headwater::server {
namespace {

TEST(KeyStore, FindsOnlyWholeKeysBehindTheBearerScheme) {
  auto store = KeyStore::create({"alpha-123", "beta"});
  ASSERT_TRUE(store);
  EXPECT_EQ(store->find("Bearer alpha-123"), 0u);
  EXPECT_EQ(store->find("bearer beta"), 1u);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer alpha-12", "Bearer alpha-1234", "Basic alpha-123",
                            "alpha-123", "Bearer  beta", "Bearer beta "}) {
    EXPECT_FALSE(store->find(wrong)) << wrong;
  }
}

TEST(KeyStore, RefusesKeysThatNoClientCouldSend) {
  EXPECT_FALSE(KeyStore::create({""}));
  EXPECT_FALSE(KeyStore::create({"two words"}));
  EXPECT_FALSE(KeyStore::create({"line\n"}));
}

TEST(KeyStore, WithoutKeysNobodyNeedsOne) {
  auto store = KeyStore::create({});
  ASSERT_TRUE(store);
  EXPECT_TRUE(store->empty());
  EXPECT_FALSE(store->find("Bearer x"));
}

}  // namespace
}  // namespace headwater::server
