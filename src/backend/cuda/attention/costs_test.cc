// The plans that a GPU's costs lead to. No GPU is needed: the shape of an H200 is written down here.
#include "backend/cuda/attention/costs.h"

#include <gtest/gtest.h>

#include <optional>

#include "attention/attention.h"
#include "backend/cuda/attention/policy.h"
#include "support/forest.h"
#include "support/plan_audit.h"

namespace headwater::backend::cuda {
namespace {

using attention::DeviceShape;
using attention::Path;
using attention::Plan;
using attention::Sharing;
using attention::WorkItem;
using testing::make_tree;
using testing::SequencePages;

constexpr uint32_t kMultiprocessors = 132;
constexpr uint32_t kPageSize = 32;

// One layer with 32 query heads on 8 KV heads of 128 columns.
constexpr ops::KvShape kShape{1, 8, 128, 128, kPageSize, 0, DType::kBF16};
constexpr uint32_t kQueryHeads = 32;

DeviceShape h200() {
  const uint32_t group = kQueryHeads / kShape.kv_heads;
  return {.workers = kMultiprocessors,
          .kv_heads = kShape.kv_heads,
          .group = group,
          .tokens_item_max = kStreams * slab_tokens(group),
          .kv_bytes_token = kShape.bytes_token_layer(),
          .tokens_half = slab_tokens(group)};
}

// A planner for one batch, as an engine with room for it makes one.
class Planned {
 public:
  Planned(const std::vector<SequencePages>& sequences, bool is_invariant, Sharing sharing = Sharing::kAuto)
      : storage_(kPageSize, sequences) {
    attention::PlanLimits limits = testing::limits_for(sequences, kPageSize);
    limits.workers = kMultiprocessors;
    attention::PlanSettings settings;
    settings.sharing = sharing;
    settings.invariant = is_invariant;
    if (!is_invariant) settings.cut = attention::kNoCut;
    auto planner = attention::Planner::create(limits, settings, attention_costs(kShape, is_invariant), h200());
    EXPECT_TRUE(planner) << planner.status().message();
    planner_.emplace(std::move(planner).value());
    auto made = planner_->plan(storage_.view());
    EXPECT_TRUE(made) << made.status().message();
    plan_ = *made;
    EXPECT_EQ(testing::PlanAudit(*plan_, storage_.view(), *planner_, h200().tokens_item_max).run(), "");
  }
  const Plan& plan() const { return *plan_; }

 private:
  testing::PageTableStorage storage_;
  std::optional<attention::Planner> planner_;
  const Plan* plan_ = nullptr;
};

TEST(AttentionCosts, EveryTermIsPositive) {
  for (const uint32_t head_dim : {64u, 80u, 128u, 256u}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
      for (const bool is_invariant : {false, true}) {
        const attention::CostModel c = attention_costs({1, 8, head_dim, head_dim, kPageSize, 0, dtype}, is_invariant);
        for (const double term : {c.step, c.item, c.key_first, c.key_repeat, c.key_far, c.overlap, c.key_tile, c.row,
                                  c.gain_min, c.partial, c.merge, c.merge_state}) {
          EXPECT_GT(term, 0) << "head size " << head_dim << ", " << to_string(dtype);
        }
        EXPECT_LT(c.key_repeat, c.key_first);     // the L2 is nearer than memory
        EXPECT_LT(c.key_alone, 2 * c.key_first);  // of one stream; a multiprocessor has two
      }
    }
  }
}

TEST(AttentionCosts, ReadingScalesWithTheBytesOfAKeyAndArithmeticWithTheColumns) {
  const attention::CostModel base = attention_costs(kShape, false);
  ops::KvShape wide = kShape, narrow = kShape, many = kShape;
  wide.dtype = DType::kF32;
  narrow.head_dim = narrow.v_head_dim = 64;
  many.kv_heads = 16;
  const attention::CostModel f32 = attention_costs(wide, false), half = attention_costs(narrow, false);
  EXPECT_DOUBLE_EQ(f32.key_first, 2 * base.key_first);
  EXPECT_DOUBLE_EQ(f32.key_repeat, 2 * base.key_repeat);
  EXPECT_DOUBLE_EQ(f32.key_tile, base.key_tile);
  EXPECT_DOUBLE_EQ(half.key_first, base.key_first / 2);
  EXPECT_DOUBLE_EQ(half.key_tile, base.key_tile / 2);
  EXPECT_DOUBLE_EQ(half.partial, base.partial / 2);
  EXPECT_DOUBLE_EQ(attention_costs(many, false).key_first, base.key_first);  // of one KV head
}

void expect_path(Path path, uint32_t sequences, uint32_t shared, bool is_invariant) {
  for (const uint32_t own : {64u, 512u}) {
    const Planned planned(make_tree({.nodes = {1, sequences}, .tokens = {shared, own}}), is_invariant);
    EXPECT_STREQ(to_string(planned.plan().outcome.path), to_string(path))
        << sequences << " sequences, " << shared << " tokens shared, " << own << " of their own";
  }
}

// Measured: docs/benchmarks/h200-flashinfer.md, columns of sharing off and auto.
TEST(AttentionCosts, APrefixIsSharedWhereThatIsFaster) {
  for (const uint32_t sequences : {8u, 16u, 64u, 256u}) {
    expect_path(Path::kShared, sequences, 8192, false);
    expect_path(Path::kShared, sequences, 32768, false);
  }
  expect_path(Path::kShared, 64, 2048, false);
  expect_path(Path::kShared, 256, 2048, false);
}

// The cache gives a short prefix to a few sequences as fast as one product could attend it for all.
TEST(AttentionCosts, AShortPrefixOfFewSequencesIsNot) {
  for (const uint32_t sequences : {4u, 8u, 16u}) expect_path(Path::kFlat, sequences, 512, false);
}

// Pieces of whole cuts are coarse: those of four sequences, eight cuts each, end as soon without being shared.
TEST(AttentionCosts, UnderThePromiseOfTheSameBitsEightSequencesAreShared) {
  for (uint32_t sequences = 8; sequences <= 256; sequences *= 2) {
    for (const uint32_t shared : {2048u, 8192u, 32768u}) expect_path(Path::kShared, sequences, shared, true);
  }
}

// A piece that ends a microsecond sooner and has to be merged ends the step later.
TEST(AttentionCosts, AShortSequenceStaysWhole) {
  const Planned planned(make_tree({.nodes = {1}, .tokens = {256}}), false);
  EXPECT_EQ(planned.plan().items.size(), 1u);
  EXPECT_EQ(planned.plan().partials, 0u);
}

TEST(AttentionCosts, WhereNothingIsSharedTheStepIsFlat) {
  for (const uint32_t sequences : {1u, 4u, 64u}) {
    for (const uint32_t tokens : {100u, 4096u}) {
      const Planned planned(make_tree({.nodes = {sequences}, .tokens = {tokens}}), false);
      EXPECT_EQ(planned.plan().outcome.path, Path::kFlat);
      EXPECT_EQ(planned.plan().outcome.reason(), attention::NotShared::kNothingShared);
    }
  }
}

TEST(AttentionCosts, APageSharedByTwoShortSequencesIsNot) {
  const Planned planned(make_tree({.nodes = {1, 2}, .tokens = {kPageSize, 64}}), false);
  EXPECT_EQ(planned.plan().outcome.path, Path::kFlat);
  EXPECT_EQ(planned.plan().outcome.reason(), attention::NotShared::kBelowCost);
}

// The device hands out the leading items to whole multiprocessors and all others to halves.
TEST(AttentionCosts, ItemsOfBothHalvesComeFirstAndNoneIsLarger) {
  const DeviceShape device = h200();
  for (const uint32_t sequences : {4u, 16u, 17u, 32u, 100u}) {
    std::vector<SequencePages> batch = make_tree({.nodes = {1, sequences}, .tokens = {1024, 64}});
    for (const SequencePages& stranger : make_tree({.nodes = {40}, .tokens = {6000}, .first_page = 10000}))
      batch.push_back(stranger);
    const Planned planned(batch, false, Sharing::kAlways);
    const Plan& plan = planned.plan();
    for (uint32_t i = 0; i < plan.items.size(); ++i) {
      ASSERT_LE(plan.items[i].token_count, device.tokens_item_max);
      ASSERT_EQ(plan.items[i].token_count > device.tokens_half, i < plan.items_large) << "item " << i;
    }
    EXPECT_EQ(plan.items_large > 0, sequences > device.tokens_half) << sequences;
  }
}

// Half of the multiprocessors read as fast as the memory gives.
TEST(AttentionCosts, AFewLongSequencesOccupyHalfOfTheMultiprocessors) {
  for (const uint32_t sequences : {1u, 2u, 3u}) {
    const Planned planned(make_tree({.nodes = {sequences}, .tokens = {32768}}), false);
    const Plan& plan = planned.plan();
    EXPECT_GE(plan.items.size() * kShape.kv_heads, h200().workers / 2) << sequences;
    EXPECT_EQ(plan.outcome.splits, plan.items.size() - sequences);
    EXPECT_GT(plan.partials, 0u);  // the audit holds them against the limits
  }
}

}  // namespace
}  // namespace headwater::backend::cuda
