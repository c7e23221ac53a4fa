// Random forests against brute force.
#include <gtest/gtest.h>

#include "attention/attention.h"
#include "support/forest.h"
#include "support/plan_audit.h"

namespace headwater::attention {
namespace {

using testing::PageTableStorage;
using testing::PlanAudit;
using testing::SequencePages;

struct Case {
  testing::RandomForestShape shape;
  PlanSettings settings;
  DeviceShape device;
};

Case make_case(Random& random) {
  Case c;
  c.shape.sequences = random.between(1, 14);
  c.shape.page_size = 1u << random.below(4);
  c.shape.pages_max = random.between(1, 24);
  c.shape.q_len_max = random.below(3) == 0 ? 1 : 7;
  c.shape.fork_percent = random.below(2) == 0 ? 75 : 100;
  c.settings.sharing = static_cast<Sharing>(random.below(3));
  c.settings.invariant = random.below(3) > 0;
  c.settings.cut = c.shape.page_size * random.between(1, 4);
  c.settings.window = random.below(3) == 0 ? random.between(1, 60) : 0;
  c.settings.shared_members_min = random.below(4) == 0 ? 3 : 2;
  c.settings.shared_pages_min = random.below(4) == 0 ? 4 : 0;
  c.device.workers = 1u << random.below(6);
  c.device.kv_heads = random.between(1, 3);
  c.device.group = random.between(1, 4);
  c.device.tokens_item_max = random.below(2) == 0 ? 64 : random.between(1, 5);
  c.device.kv_bytes_token = 3;
  return c;
}

CostModel cheap_items() {
  return {.item = 2, .key_first = 8, .key_repeat = 4, .key_tile = 1, .row = 1, .partial = 1};
}

TEST(PlannerCoverage, EveryVisibleKeyIsReadOnceByEachTokenInThousandsOfForests) {
  uint32_t shared = 0, mixed = 0, split = 0, nested = 0, full = 0;
  for (uint64_t seed = 1; seed <= 6000; ++seed) {
    Random random(seed);
    const Case c = make_case(random);
    const std::vector<SequencePages> sequences = testing::make_random_forest(random, c.shape);
    const PageTableStorage storage(c.shape.page_size, sequences);
    const PageTable table = storage.view();
    const uint32_t pages_spare = random.below(4) == 0 ? 0 : 64;  // without, the plan's arrays are often full
    const PlanLimits limits = testing::limits_for(sequences, c.shape.page_size, pages_spare);
    auto planner = Planner::create(limits, c.settings, cheap_items(), c.device);
    ASSERT_TRUE(planner) << planner.status().message();
    auto plan = planner->plan(table);
    ASSERT_TRUE(plan) << plan.status().message() << " seed " << seed;
    ASSERT_EQ(PlanAudit(**plan, table, *planner, c.device.tokens_item_max).run(), "") << "seed " << seed;

    const Outcome& outcome = (*plan)->outcome;
    uint64_t keys = 0;
    for (const WorkItem& item : (*plan)->items) keys += item.key_count;
    ASSERT_EQ(outcome.bytes_read, 3 * keys) << "seed " << seed;
    ASSERT_EQ(outcome.path == Path::kFlat, outcome.groups == 0) << "seed " << seed;
    if (c.settings.sharing == Sharing::kOff) {
      ASSERT_EQ(outcome.path, Path::kFlat) << "seed " << seed;
      ASSERT_EQ(outcome.bytes_read, outcome.bytes_flat) << "seed " << seed;
    }
    if (c.settings.window == 0) {
      ASSERT_LE(outcome.bytes_read, outcome.bytes_flat) << "seed " << seed;
    }
    if (c.settings.window == 0 && table.tokens() <= c.device.tokens_item_max) {
      ASSERT_EQ(outcome.bytes_unique, 3 * testing::unique_keys(table)) << "seed " << seed;
      ASSERT_EQ(outcome.bytes_flat - outcome.bytes_read, 3 * outcome.tokens_saved) << "seed " << seed;
    }
    shared += outcome.path == Path::kShared;
    mixed += outcome.path == Path::kMixed;
    split += outcome.splits > 0;
    nested += outcome.depth > 1;
    full += outcome.reason() == NotShared::kPlanCapacity;
  }
  // The forests are no proof if they never take these paths.
  EXPECT_GT(shared, 80u);
  EXPECT_GT(mixed, 300u);
  EXPECT_GT(split, 300u);
  EXPECT_GT(nested, 100u);
  EXPECT_GT(full, 5u);
}

TEST(PlannerCoverage, APlanIsTheSameWheneverItIsMade) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    const Case c = make_case(random);
    const std::vector<SequencePages> sequences = testing::make_random_forest(random, c.shape);
    const PageTableStorage storage(c.shape.page_size, sequences);
    const auto limits = testing::limits_for(sequences, c.shape.page_size);
    auto a = Planner::create(limits, c.settings, cheap_items(), c.device);
    auto b = Planner::create(limits, c.settings, cheap_items(), c.device);
    ASSERT_TRUE(a && b);
    const Plan* first = *a->plan_from_scratch(storage.view());
    for (int i = 0; i < 100; ++i) {
      const Plan* again = *b->plan_from_scratch(storage.view());
      ASSERT_EQ(first->items.size(), again->items.size());
      for (size_t n = 0; n < first->items.size(); ++n) {
        ASSERT_EQ(first->items[n].key_begin, again->items[n].key_begin);
        ASSERT_EQ(first->items[n].token_begin, again->items[n].token_begin);
        ASSERT_EQ(first->items[n].partial_begin, again->items[n].partial_begin);
      }
      ASSERT_TRUE(std::ranges::equal(first->merge_slots, again->merge_slots));
    }
  }
}

// The audit itself: a plan whose items are tampered with is caught.
TEST(PlannerCoverage, TheAuditCatchesADroppedKeyAndASwappedPage) {
  const std::vector<SequencePages> sequences =
      testing::make_tree({.nodes = {1, 3}, .tokens = {64, 20}, .page_size = 8});
  const PageTableStorage storage(8, sequences);
  const PageTable table = storage.view();
  auto planner = Planner::create(testing::limits_for(sequences, 8), {.sharing = Sharing::kAlways, .cut = 16}, {}, {});
  ASSERT_TRUE(planner);
  Plan plan = **planner->plan(table);
  ASSERT_EQ(PlanAudit(plan, table, *planner, 64).run(), "");
  std::vector<WorkItem> items(plan.items.begin(), plan.items.end());
  plan.items = items;
  for (WorkItem& item : items) {
    const WorkItem kept = item;
    item.key_count -= 1;
    EXPECT_NE(PlanAudit(plan, table, *planner, 64).run(), "");
    item = kept;
    item.page_begin += 1;
    EXPECT_NE(PlanAudit(plan, table, *planner, 64).run(), "");
    item = kept;
  }
}

}  // namespace
}  // namespace headwater::attention
