#include "bench/workload.h"

#include <gtest/gtest.h>

#include <set>

#include "bench/statistics.h"

namespace headwater::bench {
namespace {

std::span<const PageId> pages_of(const Workload& work, uint32_t sequence) {
  return std::span(work.page_ids)
      .subspan(work.page_indptr[sequence], work.page_indptr[sequence + 1] - work.page_indptr[sequence]);
}

TEST(Workload, SequencesShareExactlyTheFullPagesOfTheirPrefix) {
  const Workload work = Workload::create(prefix_cell(3, 100, 20, 9, 3, 64, 32));  // 100 = 3 full pages and 4 tokens
  for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(pages_of(work, r).size(), 4u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pages_of(work, 0)[i], pages_of(work, 1)[i]);
    EXPECT_EQ(pages_of(work, 0)[i], pages_of(work, 2)[i]);
  }
  EXPECT_NE(pages_of(work, 0)[3], pages_of(work, 1)[3]);
  EXPECT_EQ(work.pages, 3u + 3u);
}

TEST(Workload, NestedLevelsShareByTheirPaths) {
  Cell cell = prefix_cell(4, 0, 0, 9, 3, 64, 32);
  cell.nodes = {1, 2, 4};
  cell.tokens = {64, 64, 10};
  const Workload work = Workload::create(cell);
  EXPECT_EQ(pages_of(work, 0)[1], pages_of(work, 3)[1]);  // root
  EXPECT_EQ(pages_of(work, 0)[2], pages_of(work, 1)[2]);  // first child
  EXPECT_NE(pages_of(work, 0)[2], pages_of(work, 2)[2]);  // second child
  EXPECT_NE(pages_of(work, 0)[4], pages_of(work, 1)[4]);  // tails
  EXPECT_EQ(work.pages, 2u + 2u * 2u + 4u);
}

TEST(Workload, CountsVisibleKeysPerQueryToken) {
  Cell cell = prefix_cell(2, 0, 10, 9, 3, 64, 16);
  cell.q_len = 3;
  EXPECT_EQ(Workload::create(cell).token_keys(), 2 * (8 + 9 + 10));
  cell.window = 4;
  EXPECT_EQ(Workload::create(cell).token_keys(), 2 * 12);
  cell.window = 0;
  cell.q_len = 1;
  cell.padded = 2;
  const Workload padded = Workload::create(cell);
  EXPECT_EQ(padded.token_keys(), 20);
  EXPECT_EQ(padded.kv_len.size(), 4u);
  EXPECT_EQ(padded.q_indptr.back(), 4u);
}

TEST(Grids, EveryNameGivesCellsWithUniqueNames) {
  for (const char* name :
       {"seed", "wide", "blog", "relay", "hydragen", "trees", "fork", "small-models", "none", "spec", "odd"}) {
    for (const bool cpu : {true, false}) {
      const auto cells = grid_cells(name, cpu);
      ASSERT_TRUE(cells) << name;
      std::set<std::string> names;
      for (const Cell& cell : *cells) {
        EXPECT_TRUE(names.insert(cell.name).second) << name << " has " << cell.name << " twice";
        EXPECT_EQ(cell.q_heads % cell.kv_heads, 0u);
        EXPECT_EQ(cell.nodes.size(), cell.tokens.size());
      }
      EXPECT_GE(names.size(), 8u) << name;
    }
  }
  EXPECT_EQ(grid_cells("nothing", true).status().code(), ErrorCode::kInvalidArgument);
}

TEST(Statistics, TheIntervalHoldsTheMedianAndNarrows) {
  std::vector<double> values;
  Random random(5);
  for (int i = 0; i < 400; ++i) values.push_back(1.0 + 0.1 * random.normal());
  const Interval wide = median_interval({values.begin(), values.begin() + 20});
  const Interval narrow = median_interval(values);
  EXPECT_LE(narrow.low, median(values));
  EXPECT_GE(narrow.high, median(values));
  EXPECT_LT(narrow.high - narrow.low, wide.high - wide.low);
  EXPECT_NEAR(median(values), 1.0, 0.03);
}

}  // namespace
}  // namespace headwater::bench
