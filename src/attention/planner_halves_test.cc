// Plans for devices whose workers do two small items at a time or one large one (DeviceShape::tokens_half).
#include <gtest/gtest.h>

#include "attention/attention.h"
#include "support/forest.h"
#include "support/plan_audit.h"

namespace headwater::attention {
namespace {

using testing::make_tree;
using testing::PageTableStorage;
using testing::PlanAudit;
using testing::SequencePages;

constexpr CostModel kCost{
    .item = 2, .key_first = 8, .key_repeat = 4, .rows_tile = 4, .key_tile = 1, .row = 1, .partial = 1};

// The first violation in words, or an empty string.
std::string order_of_large_items(const Plan& plan, uint32_t tokens_half) {
  for (uint32_t i = 0; i < plan.items.size(); ++i) {
    const bool is_large = tokens_half > 0 && plan.items[i].token_count > tokens_half;
    if (is_large != (i < plan.items_large))
      return fmt::format("item {} of {} tokens, {} large ones", i, plan.items[i].token_count, plan.items_large);
  }
  return plan.items_large <= plan.items.size() ? "" : "more large items than items";
}

struct Case {
  testing::RandomForestShape shape;
  PlanSettings settings;
  DeviceShape device;
};

Case make_case(Random& random) {
  Case c;
  c.shape = {.sequences = random.between(1, 14),
             .page_size = 1u << random.below(4),
             .pages_max = random.between(1, 24),
             .q_len_max = random.below(2) == 0 ? 1u : 7u};
  c.settings.sharing = static_cast<Sharing>(random.below(3));
  c.settings.invariant = random.below(2) == 0;
  c.settings.cut = c.shape.page_size * random.between(1, 4);
  c.settings.window = random.below(4) == 0 ? random.between(1, 60) : 0;
  c.device.workers = 1u << random.below(6);
  c.device.kv_heads = random.between(1, 3);
  c.device.group = random.between(1, 4);
  c.device.tokens_half = random.between(1, 8);
  c.device.tokens_item_max = 2 * c.device.tokens_half;
  return c;
}

TEST(PlannerHalves, LargeItemsComeFirstAndEveryKeyIsReadOnceInRandomForests) {
  uint32_t none = 0, both = 0, all = 0, shared = 0, split = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    const Case c = make_case(random);
    const std::vector<SequencePages> sequences = testing::make_random_forest(random, c.shape);
    const PageTableStorage storage(c.shape.page_size, sequences);
    PlanLimits limits = testing::limits_for(sequences, c.shape.page_size, 64);
    limits.workers = c.device.workers;
    auto planner = Planner::create(limits, c.settings, kCost, c.device);
    ASSERT_TRUE(planner) << planner.status().message();
    auto made = planner->plan(storage.view());
    ASSERT_TRUE(made) << made.status().message() << " seed " << seed;
    const Plan& plan = **made;
    ASSERT_EQ(PlanAudit(plan, storage.view(), *planner, c.device.tokens_item_max).run(), "") << "seed " << seed;
    ASSERT_EQ(order_of_large_items(plan, c.device.tokens_half), "") << "seed " << seed;
    none += plan.items_large == 0;
    all += plan.items_large > 0 && plan.items_large == plan.items.size();
    both += plan.items_large > 0 && plan.items_large < plan.items.size();
    shared += plan.outcome.path != Path::kFlat;
    split += plan.outcome.splits > 0;
  }
  // The forests are no proof if they never take these paths.
  EXPECT_GT(none, 300u);
  EXPECT_GT(both, 300u);
  EXPECT_GT(all, 5u);
  EXPECT_GT(shared, 300u);
  EXPECT_GT(split, 200u);
}

TEST(PlannerHalves, AWorkerThatIsNotDividedHasNoLargeItems) {
  const auto sequences = make_tree({.nodes = {1, 8}, .tokens = {512, 40}});
  const PageTableStorage storage(32, sequences);
  auto planner = Planner::create(testing::limits_for(sequences, 32), {.sharing = Sharing::kAlways}, kCost, {});
  ASSERT_TRUE(planner);
  const Plan& plan = **planner->plan(storage.view());
  EXPECT_EQ(plan.outcome.path, Path::kShared);
  EXPECT_EQ(plan.items_large, 0u);
}

TEST(PlannerHalves, ALargeItemComesBeforeALongerSmallOne) {
  // Six tokens behind 256 keys, and a stranger of 4,096 keys that costs far more.
  auto sequences = make_tree({.nodes = {1, 6}, .tokens = {256, 40}});
  const auto stranger = make_tree({.nodes = {1}, .tokens = {4096}, .first_page = 1000});
  sequences.insert(sequences.begin(), stranger[0]);
  const PageTableStorage storage(32, sequences);
  const DeviceShape device{.tokens_item_max = 8, .tokens_half = 4};
  auto planner = Planner::create(testing::limits_for(sequences, 32), {.sharing = Sharing::kAlways}, kCost, device);
  ASSERT_TRUE(planner);
  const Plan& plan = **planner->plan(storage.view());
  ASSERT_EQ(plan.items_large, 1u);
  EXPECT_EQ(plan.items[0].token_count, 6u);
  EXPECT_EQ(plan.items[0].key_count, 256u);
  EXPECT_EQ(plan.items[1].token_count, 1u);
  EXPECT_GT(plan.items[1].key_count, 256u);
}

TEST(PlannerHalves, AStepThatGrowsKeepsTheOrder) {
  auto sequences = make_tree({.nodes = {1, 12}, .tokens = {512, 40}, .pages_spare = 2});
  const auto stranger = make_tree({.nodes = {1}, .tokens = {4096}, .pages_spare = 2, .first_page = 1000});
  sequences.push_back(stranger[0]);
  sequences.back().version = 13;
  PageTableStorage storage(32, sequences);
  const DeviceShape device{.workers = 4, .tokens_item_max = 8, .tokens_half = 4};
  auto planner = Planner::create(testing::limits_for(sequences, 32), {.sharing = Sharing::kAlways}, kCost, device);
  ASSERT_TRUE(planner);
  uint32_t incremental = 0;
  for (uint32_t step = 0; step < 40; ++step, storage.grow(1)) {
    const Plan& plan = **planner->plan(storage.view());
    ASSERT_EQ(PlanAudit(plan, storage.view(), *planner, device.tokens_item_max).run(), "") << "step " << step;
    ASSERT_EQ(order_of_large_items(plan, device.tokens_half), "") << "step " << step;
    ASSERT_GT(plan.items_large, 0u);
    incremental += plan.outcome.incremental;
  }
  EXPECT_GT(incremental, 20u);
}

}  // namespace
}  // namespace headwater::attention
