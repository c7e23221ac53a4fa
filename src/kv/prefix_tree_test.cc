#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <vector>

namespace headwater::kv {
namespace {

using Tokens = std::vector<TokenId>;

const Salt kTenantA = make_salt("a");
const Salt kTenantB = make_salt("b");

// A tree over 16 pages of 2 tokens that takes whole prompts.
struct TreeFixture {
  explicit TreeFixture(PrefixTree::PageHash hash = hash_page) : tree({.pages = 16, .page_size = 2}, hash) {}

  // Inserts the full pages of `tokens` under fresh ids from `page` on; returns the path.
  std::vector<PageId> insert(const Tokens& tokens, PageId page, const Salt& salt = {}) {
    std::vector<PageId> path;
    for (size_t i = 0; i + 2 <= tokens.size(); i += 2) {
      const PageId parent = path.empty() ? kNoPage : path.back();
      path.push_back(tree.insert(page++, parent, salt, std::span(tokens).subspan(i, 2)));
    }
    return path;
  }
  std::vector<PageId> match(const Tokens& tokens, const Salt& salt = {}) const {
    std::vector<PageId> path;
    tree.walk(tokens, salt, [&](PageId page) { path.push_back(page); });
    return path;
  }
  void unhold(const std::vector<PageId>& path) {
    for (const PageId page : path) tree.unhold(page);
  }

  PrefixTree tree;
};

using Path = std::vector<PageId>;

TEST(PrefixTree, FindsTheLongestPrefixOfWholePages) {
  TreeFixture f;
  EXPECT_EQ(f.insert({1, 2, 3, 4, 5, 6}, 4), (Path{4, 5, 6}));
  EXPECT_EQ(f.match({1, 2, 3, 4, 5, 6, 7}), (Path{4, 5, 6}));
  EXPECT_EQ(f.match({1, 2, 3, 4, 5}), (Path{4, 5}));
  EXPECT_EQ(f.match({1, 2, 3, 9, 5, 6}), (Path{4}));
  EXPECT_EQ(f.match({1}), Path{});
  EXPECT_EQ(f.match({}), Path{});
  EXPECT_EQ(f.match({3, 4}), Path{});  // inner pages are found under their parent only
  EXPECT_TRUE(f.tree.audit());
}

TEST(PrefixTree, InsertReturnsThePageAlreadyThere) {
  TreeFixture f;
  f.insert({1, 2, 3, 4}, 0);
  EXPECT_EQ(f.insert({1, 2, 3, 4}, 8), (Path{0, 1}));
  EXPECT_FALSE(f.tree.contains(8));
  EXPECT_EQ(f.tree.size(), 2u);
}

TEST(PrefixTree, SplitsAnEdgeWhenPromptsDiverge) {
  TreeFixture f;
  f.insert({1, 2, 3, 4, 5, 6, 7, 8}, 0);
  EXPECT_EQ(f.insert({1, 2, 3, 4, 9, 9, 7, 8}, 8), (Path{0, 1, 10, 11}));
  EXPECT_EQ(f.match({1, 2, 3, 4, 5, 6, 7, 8}), (Path{0, 1, 2, 3}));
  EXPECT_EQ(f.match({1, 2, 3, 4, 9, 9, 7, 8}), (Path{0, 1, 10, 11}));
  EXPECT_EQ(f.tree.size(), 6u);
  EXPECT_TRUE(f.tree.audit());
}

TEST(PrefixTree, EqualPagesUnderDifferentParentsAreDifferentNodes) {
  TreeFixture f;
  EXPECT_EQ(f.insert({1, 1, 5, 5}, 0), (Path{0, 1}));
  EXPECT_EQ(f.insert({2, 2, 5, 5}, 2), (Path{2, 3}));
  EXPECT_EQ(f.match({2, 2, 5, 5}), (Path{2, 3}));
}

TEST(PrefixTree, KeepsSaltsApart) {
  TreeFixture f;
  f.insert({1, 2, 3, 4}, 0, kTenantA);
  EXPECT_EQ(f.match({1, 2, 3, 4}, kTenantB), Path{});
  EXPECT_EQ(f.match({1, 2, 3, 4}), Path{});
  EXPECT_EQ(f.insert({1, 2, 3, 4}, 2, kTenantB), (Path{2, 3}));
  EXPECT_EQ(f.match({1, 2, 3, 4}, kTenantA), (Path{0, 1}));
}

TEST(PrefixTree, EvictsTheOldestLeafFirstAndParentsAfterTheirLastChild) {
  TreeFixture f;
  const Path left = f.insert({1, 1, 2, 2}, 0);   // 0 - 1
  const Path right = f.insert({1, 1, 3, 3}, 4);  // 0 - 5
  f.tree.unhold(5);
  f.tree.unhold(0);  // first, but still under 1
  EXPECT_EQ(f.tree.evictable(), 1u);
  f.tree.unhold(1);
  EXPECT_EQ(f.tree.evictable(), 3u);
  EXPECT_TRUE(f.tree.audit());
  EXPECT_EQ(f.tree.evict_oldest(), 5u);
  EXPECT_EQ(f.tree.evict_oldest(), 1u);
  EXPECT_TRUE(f.tree.audit());
  EXPECT_EQ(f.tree.evict_oldest(), 0u);
  EXPECT_EQ(f.tree.evict_oldest(), kNoPage);
  EXPECT_EQ(f.tree.size(), 0u);
}

TEST(PrefixTree, UseRefreshesTheAge) {
  TreeFixture f;
  f.unhold(f.insert({1, 1}, 1));
  f.unhold(f.insert({2, 2}, 2));
  f.tree.hold(1);
  f.tree.unhold(1);
  EXPECT_EQ(f.tree.evict_oldest(), 2u);
  EXPECT_EQ(f.tree.evict_oldest(), 1u);
}

TEST(PrefixTree, NeverEvictsAHeldPageNorItsAncestors) {
  TreeFixture f;
  f.insert({1, 1, 2, 2, 3, 3}, 0);
  f.tree.unhold(0);
  f.tree.unhold(2);  // 1 stays held and protects 0
  EXPECT_EQ(f.tree.evictable(), 1u);
  EXPECT_EQ(f.tree.evict_oldest(), 2u);
  EXPECT_EQ(f.tree.evict_oldest(), kNoPage);
  EXPECT_TRUE(f.tree.audit());
  f.tree.unhold(1);
  EXPECT_EQ(f.tree.evict_oldest(), 1u);
  EXPECT_EQ(f.tree.evict_oldest(), 0u);
}

TEST(PrefixTree, NeverEvictsAPinnedPageUntilItsLastPinGoes) {
  TreeFixture f;
  f.unhold(f.insert({1, 1, 2, 2}, 0));
  f.tree.pin(1);
  f.tree.pin(1);
  EXPECT_EQ(f.tree.evictable(), 0u);  // 0 is an ancestor
  f.tree.unpin(1);
  EXPECT_EQ(f.tree.pins(1), 1u);
  EXPECT_EQ(f.tree.evict_oldest(), kNoPage);
  f.tree.unpin(1);
  EXPECT_EQ(f.tree.evictable(), 2u);
  EXPECT_TRUE(f.tree.audit());
}

TEST(PrefixTree, ComparesTokensSoThatACollisionNeverGivesAWrongPage) {
  const auto constant = [](const uint64_t(&)[2], const Hash128&, std::span<const TokenId>) { return Hash128{7, 7}; };
  TreeFixture f(constant);
  EXPECT_EQ(f.insert({1, 2, 3, 4}, 0), (Path{0, 1}));
  EXPECT_EQ(f.match({3, 4}), Path{});                  // same hash, same tokens as page 1, another parent
  EXPECT_EQ(f.match({1, 2, 3, 5}), (Path{0}));         // same hash and parent, another token
  EXPECT_EQ(f.match({1, 2, 3, 4}, kTenantA), Path{});  // same hash and tokens, another salt
  EXPECT_EQ(f.insert({3, 4}, 2), (Path{2}));
  EXPECT_EQ(f.insert({1, 2}, 3, kTenantA), (Path{3}));
  EXPECT_EQ(f.insert({1, 2, 3, 5}, 4), (Path{0, 5}));
  EXPECT_TRUE(f.tree.audit());
  f.unhold({0, 1, 2, 3, 5});
  while (f.tree.evict_oldest() != kNoPage) EXPECT_TRUE(f.tree.audit());  // erasing keeps the one long probe chain whole
  EXPECT_EQ(f.tree.size(), 0u);
}

TEST(PrefixTree, TheHashDependsOnKeyParentAndTokens) {
  const Tokens tokens = {1, 2, 3};
  const Hash128 base = hash_page({1, 2}, {3, 4}, tokens);
  EXPECT_EQ(base, hash_page({1, 2}, {3, 4}, tokens));
  EXPECT_FALSE(base == hash_page({1, 3}, {3, 4}, tokens));
  EXPECT_FALSE(base == hash_page({1, 2}, {3, 5}, tokens));
  EXPECT_FALSE(base == hash_page({1, 2}, {3, 4}, Tokens{1, 2, 4}));
  EXPECT_FALSE(base == hash_page({1, 2}, {3, 4}, Tokens{1, 2}));
}

TEST(PrefixTreeDeathTest, StopsWhereAPageIsPublishedTwiceOrUnderNobody) {
  TreeFixture f;
  f.insert({1, 1}, 0);
  EXPECT_DEATH(f.insert({2, 2}, 0), "under other tokens");
  EXPECT_DEATH(f.tree.unpin(0), "not pinned");
  f.tree.unhold(0);
  EXPECT_DEATH(f.insert({1, 1, 2, 2}, 0), "nobody holds");
}

}  // namespace
}  // namespace headwater::kv
