#include "backend/cpu/attention_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/calibrate.h"

namespace headwater::backend::cpu {
namespace {

double time_of(const ElementCosts& costs, const TimedItem& item) {
  return costs.item + item.rows * (costs.row + costs.row_width * item.width) +
         item.keys * (item.passes * (costs.pass + costs.pass_width * item.width) +
                      item.rows * (costs.weight + costs.weight_width * item.width));
}

// What the measurement times, with timings as `costs` would give them, each off by up to `noise`.
std::vector<TimedItem> items_of(const ElementCosts& costs, double noise) {
  std::vector<TimedItem> items;
  Random random(7);
  for (const double width : {1.0, 2.0, 4.0}) {
    for (const double keys : {128.0, 512.0}) {
      for (const double rows : {1.0, 3.0, 8.0, 16.0, 24.0, 48.0}) {
        TimedItem item{rows, std::ceil(rows / 16), keys, width, 0};
        item.ns = time_of(costs, item) * (1 + noise * (2 * random.uniform() - 1));
        items.push_back(item);
      }
    }
  }
  return items;
}

ElementCosts example() {
  ElementCosts costs;
  costs.item = 100;
  costs.row = 10;
  costs.row_width = 30;
  costs.pass = 0.4;
  costs.pass_width = 2.5;
  costs.weight = 0.5;
  costs.weight_width = 0.1;
  return costs;
}

TEST(AttentionCosts, TheFitGivesBackTheCostsThatMadeTheTimings) {
  ElementCosts fitted;
  fit_items(items_of(example(), 0), fitted);
  EXPECT_NEAR(fitted.item, 100, 1e-3);
  EXPECT_NEAR(fitted.row, 10, 1e-3);
  EXPECT_NEAR(fitted.row_width, 30, 1e-3);
  EXPECT_NEAR(fitted.pass, 0.4, 1e-5);
  EXPECT_NEAR(fitted.pass_width, 2.5, 1e-5);
  EXPECT_NEAR(fitted.weight, 0.5, 1e-5);
  EXPECT_NEAR(fitted.weight_width, 0.1, 1e-5);
  EXPECT_NEAR(fitted.error, 0, 1e-6);
}

TEST(AttentionCosts, NoisyTimingsArePredictedWithinTheirNoise) {
  ElementCosts fitted;
  fit_items(items_of(example(), 0.1), fitted);
  for (const TimedItem& item : items_of(example(), 0)) EXPECT_NEAR(time_of(fitted, item), item.ns, 0.1 * item.ns);
  EXPECT_GT(fitted.error, 0.03);
  EXPECT_LT(fitted.error, 0.12);
}

TEST(AttentionCosts, NoTermIsFittedBelowZero) {
  ElementCosts odd = example();
  odd.row = -40;  // timings that ask for it
  odd.weight_width = -0.05;
  ElementCosts fitted;
  fit_items(items_of(odd, 0), fitted);
  AttentionCosts costs;
  costs.bf16 = fitted;
  for (const auto& [name, ns] : to_named(costs)) EXPECT_GE(ns, 0) << name;
  for (const TimedItem& item : items_of(odd, 0)) EXPECT_NEAR(time_of(fitted, item), item.ns, 0.2 * item.ns);
}

TEST(AttentionCosts, NamesAndBack) {
  AttentionCosts costs = built_in_costs(Target::kAvx512);
  costs.f32.read[3] = 12.5;
  const auto back = from_named(to_named(costs));
  ASSERT_TRUE(back);
  EXPECT_EQ(to_named(*back), to_named(costs));
  EXPECT_EQ(back->f32.read[3], 12.5);
}

TEST(AttentionCosts, AMissingOrImpossibleCostIsNamed) {
  const ops::Costs good = to_named(built_in_costs(Target::kAvx2));
  ops::Costs costs = good;
  costs.erase("bf16.pass");
  EXPECT_NE(from_named(costs).status().message().find("bf16.pass is missing"), std::string::npos);
  for (const double bad :
       {-1.0, 2e9, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    costs = good;
    costs["f16.read_512k"] = bad;
    EXPECT_EQ(from_named(costs).status().code(), ErrorCode::kCorrupt) << bad;
    EXPECT_NE(from_named(costs).status().message().find("f16.read_512k"), std::string::npos);
  }
}

TEST(AttentionCosts, ReadingIsFreeWhenWarmAndRisesBetweenTheDistances) {
  ElementCosts costs;
  costs.read = {0, 0, 10, 20, 20, 20, 20, 30, 40};  // at 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 65536
  EXPECT_EQ(costs.read_ns_kib(10), 0);
  EXPECT_EQ(costs.read_ns_kib(1024), 0);
  EXPECT_NEAR(costs.read_ns_kib(std::sqrt(1024.0 * 1536.0)), 5, 1e-9);
  EXPECT_EQ(costs.read_ns_kib(3000), 20);
  EXPECT_EQ(costs.read_ns_kib(1e9), 40);
  EXPECT_GT(costs.distance_kib(0.1), 1024);
  EXPECT_LT(costs.distance_kib(0.1), 1536);
  EXPECT_GT(costs.distance_kib(0.9), 1536);
  EXPECT_LT(costs.distance_kib(0.9), 2200);
}

TEST(AttentionCosts, ThePlannerTakesWhatEveryTargetIsSaidToCost) {
  for (const Target target : all_targets()) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3}) {
      ops::KvShape shape{1, 3, 64, 64, 32, 64, dtype};
      const attention::CostModel small = cost_model(built_in_costs(target), target, 2, shape, 9);
      shape.pages = 1u << 20;
      const attention::CostModel large = cost_model(built_in_costs(target), target, 2, shape, 9);
      EXPECT_TRUE(attention::Planner::create({4, 4, 4, 32}, {}, large, {}));
      EXPECT_LT(small.key_first, large.key_first) << "a small pool stays in the cache";
      EXPECT_LE(large.key_repeat, large.key_far);
      EXPECT_LT(large.near_keys, large.far_keys);
      EXPECT_GT(large.key_tile + large.key_row, 0);
      EXPECT_GE(large.gain_min, 0.1) << "what was measured elsewhere is to save more";
    }
  }
}

TEST(AttentionCosts, AShortMeasurementGivesCostsThatTheBackEndTakes) {
  auto pool = ThreadPool::create(2);
  ASSERT_TRUE(pool);
  const Target target = choose_target("").value();
  const auto costs = measure_costs(target, **pool, 0.2);
  ASSERT_TRUE(costs) << costs.status().message();
  EXPECT_TRUE(from_named(to_named(*costs)));
  for (const ElementCosts* element : {&costs->bf16, &costs->f16, &costs->f32, &costs->f8}) {
    EXPECT_GT(element->pass + element->pass_width + element->weight + element->weight_width, 0);
    EXPECT_TRUE(std::is_sorted(element->read.begin(), element->read.end()));
  }
}

}  // namespace
}  // namespace headwater::backend::cpu
