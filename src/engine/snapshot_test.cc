#include "engine/snapshot.h"

#include <gmock/gmock.h>

namespace headwater::engine {
namespace {

std::vector<SnapshotRun> runs_of(const std::vector<std::vector<PageId>>& lists, std::vector<int32_t>& run_of) {
  std::vector<std::span<const PageId>> views(lists.begin(), lists.end());
  return shared_runs(views, 16, run_of);
}

TEST(SharedRuns, NestAndKeepStrangersApart) {
  // Two behind 1 2 3, of which a third shares only 1 2; a pair behind 7; a stranger.
  std::vector<int32_t> run_of;
  const auto runs = runs_of({{1, 2, 3, 4}, {7, 8}, {1, 2, 9}, {5}, {1, 2, 3}, {7, 6, 2}}, run_of);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].parent, -1);
  EXPECT_EQ(runs[0].pages, 2u);
  EXPECT_EQ(runs[0].tokens, 32u);
  EXPECT_EQ(runs[0].members, 3u);
  EXPECT_EQ(runs[1].parent, 0);
  EXPECT_EQ(runs[1].pages, 1u);
  EXPECT_EQ(runs[1].members, 2u);
  EXPECT_EQ(runs[2].parent, -1);
  EXPECT_EQ(runs[2].members, 2u);
  EXPECT_THAT(run_of, ::testing::ElementsAre(1, 2, 0, -1, 1, 2));
}

TEST(SharedRuns, EqualAndEmptyListsAreRunsOfTheirOwnLength) {
  std::vector<int32_t> run_of;
  const auto runs = runs_of({{3, 4}, {}, {3, 4}, {}}, run_of);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].pages, 2u);
  EXPECT_THAT(run_of, ::testing::ElementsAre(0, -1, 0, -1));
  EXPECT_TRUE(runs_of({}, run_of).empty());
}

}  // namespace
}  // namespace headwater::engine
