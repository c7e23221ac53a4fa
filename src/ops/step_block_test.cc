#include "ops/step_block.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace headwater::ops {
namespace {

constexpr StepLimits kLimits{
    .sequences_max = 4, .tokens_max = 16, .pages_per_sequence_max = 8, .page_size = 16, .logits_max = 4};

bool is_inside(std::span<const std::byte> block, const void* at, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(at);
  return begin >= block.data() && begin + bytes <= block.data() + block.size();
}

template <typename T>
bool is_inside(std::span<const std::byte> block, std::span<T> part) {
  return is_inside(block, part.data(), part.size_bytes());
}

struct SmallPlan {
  std::vector<attention::WorkItem> items{{0, 2, 0, 0, 20, 0, attention::kFold}};
  std::vector<uint32_t> order{1, 0}, positions{19, 18}, indptr{0, 1, 2}, slots{0, 1};
  std::vector<uint8_t> empty{0, 0};
  attention::Plan view() const { return {items, order, positions, indptr, slots, empty, 2, 64, 7, {}}; }
};

TEST(StepBlock, LaysOutEveryArrayInItsOwnPartOfOneBlock) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  ASSERT_TRUE(block) << block.status().message();
  block->layout(4, 16, 4, 32);
  EXPECT_EQ(block->token_ids().size(), 16u);
  EXPECT_EQ(block->positions().size(), 16u);
  EXPECT_EQ(block->append_pages().size(), 16u);
  EXPECT_EQ(block->append_slots().size(), 16u);
  EXPECT_EQ(block->logits_tokens().size(), 4u);
  EXPECT_EQ(block->page_ids().size(), 32u);
  EXPECT_EQ(block->page_indptr().size(), 5u);
  EXPECT_EQ(block->kv_len().size(), 4u);
  EXPECT_EQ(block->q_indptr().size(), 5u);
  EXPECT_EQ(block->versions().size(), 4u);
  // Writing one array leaves the others alone.
  const std::vector<std::span<uint32_t>> arrays{block->positions(),     block->append_pages(), block->append_slots(),
                                                block->logits_tokens(), block->page_ids(),     block->page_indptr(),
                                                block->kv_len(),        block->q_indptr()};
  for (uint32_t i = 0; i < arrays.size(); ++i) std::fill(arrays[i].begin(), arrays[i].end(), i + 1);
  for (uint32_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(std::vector<uint32_t>(arrays[i].begin(), arrays[i].end()),
              std::vector<uint32_t>(arrays[i].size(), i + 1));
  }
}

TEST(StepBlock, TheHostsBatchViewsTheBlockItself) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(2, 3, 1, 5);
  block->token_ids()[2] = 77;
  block->page_ids()[4] = 9;
  const DeviceBatch batch = block->host_batch();
  EXPECT_EQ(batch.tokens, 3u);
  EXPECT_EQ(batch.sequences, 2u);
  EXPECT_EQ(batch.token_ids[2], 77);
  EXPECT_EQ(batch.page_ids[4], 9u);
  EXPECT_EQ(batch.positions.data(), block->positions().data());
  const attention::PageTable table = block->page_table();
  EXPECT_EQ(table.page_size, 16u);
  EXPECT_EQ(table.sequences(), 2u);
  EXPECT_EQ(table.page_ids.data(), block->page_ids().data());
}

TEST(StepBlock, CopiesThePlanBehindTheInputs) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(2, 2, 1, 4);
  auto plan = std::make_unique<SmallPlan>();
  block->set_plan(plan->view());
  plan.reset();  // the block keeps nothing of the planner's arrays
  const attention::Plan copy = block->host_batch().plans[0];
  ASSERT_EQ(copy.items.size(), 1u);
  EXPECT_EQ(copy.items[0].key_count, 20u);
  EXPECT_EQ(copy.token_order[0], 1u);
  EXPECT_EQ(copy.token_position[1], 18u);
  EXPECT_EQ(copy.merge_indptr.back(), 2u);
  EXPECT_EQ(copy.merge_slots[1], 1u);
  EXPECT_EQ(copy.partials, 2u);
  EXPECT_EQ(copy.cut, 64u);
  EXPECT_EQ(copy.window, 7u);
}

TEST(StepBlock, TheHeaderSaysWhatKindOfPlanItIs) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(2, 2, 1, 4);
  SmallPlan small;
  attention::Plan plan = small.view();
  plan.items_large = 1;
  plan.outcome.bytes_unique = plan.outcome.bytes_read = 1000;
  block->set_plan(plan);
  const StepHeader& header = *block->host_batch().plans[0].header;
  EXPECT_EQ(header.items_large, 1u);
  EXPECT_EQ(header.keys_new, 1u << 30) << "whose plan does not say: any key may be new";
  EXPECT_EQ(header.reads_again, 0u);
  plan.keys_new = 3;
  plan.outcome.bytes_read = 2000;
  block->set_plan(plan);
  EXPECT_EQ(header.reads_again, 1u);
  EXPECT_EQ(header.keys_new, 3u);
  EXPECT_EQ(block->host_batch().plans[0].items_max, kLimits.plan_limits().items_max());
  block->layout(1, 1, 1, 1);
  EXPECT_EQ(header.reads_again, 0u);
}

TEST(StepBlock, BytesCoverInputsAndPlanAndOnlyThePageIdsInUse) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(2, 2, 1, 20);
  const size_t bytes_of_more = block->bytes().size();
  block->layout(2, 2, 1, 4);
  block->set_plan(SmallPlan().view());
  const std::span<const std::byte> bytes = block->bytes();
  EXPECT_LT(bytes.size(), bytes_of_more);
  EXPECT_LE(bytes.size(), StepBlock::bytes_max(kLimits));
  const DeviceBatch batch = block->host_batch();
  EXPECT_TRUE(is_inside(bytes, batch.token_ids));
  EXPECT_TRUE(is_inside(bytes, batch.page_ids));
  EXPECT_TRUE(is_inside(bytes, batch.plans[0].items));
  EXPECT_TRUE(is_inside(bytes, batch.plans[0].token_empty));
  block->set_plan(SmallPlan().view());  // replaces the first
  EXPECT_EQ(block->bytes().size(), bytes.size());
}

TEST(StepBlock, EveryArrayKeepsItsPlaceWhateverTheStepsSizes) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(4, 16, 4, 32);
  block->set_plan(SmallPlan().view());
  const DeviceBatch large = block->host_batch();
  block->layout(1, 2, 0, 0);
  const DeviceBatch none = block->host_batch();
  EXPECT_EQ(none.page_ids.data(), large.page_ids.data());  // empty, but there
  EXPECT_EQ(none.plans[0].items.data(), large.plans[0].items.data());
  EXPECT_TRUE(none.plans[0].items.empty());
  block->layout(1, 2, 1, 1);
  block->set_plan(SmallPlan().view());
  const DeviceBatch small = block->host_batch();
  EXPECT_EQ(small.token_ids.data(), large.token_ids.data());
  EXPECT_EQ(small.append_slots.data(), large.append_slots.data());
  EXPECT_EQ(small.page_ids.data(), large.page_ids.data());
  EXPECT_EQ(small.plans[0].items.data(), large.plans[0].items.data());
  EXPECT_EQ(small.plans[0].merge_slots.data(), large.plans[0].merge_slots.data());
  EXPECT_EQ(small.plans[0].header, large.plans[0].header);
  EXPECT_EQ(small.plans[0].header->tokens, 2u);
  EXPECT_EQ(small.plans[0].header->sequences, 1u);
  EXPECT_EQ(small.plans[0].header->items, 1u);
  EXPECT_EQ(small.plans[0].header->partials, 2u);
}

TEST(StepBlock, ACopyElsewhereIsViewedAtTheSameOffsets) {
  StepBlock block = StepBlock::create(kLimits, std::move(*Buffer::create(StepBlock::bytes_max(kLimits))), nullptr);
  block.layout(2, 2, 1, 4);
  block.page_ids()[3] = 9;
  block.set_plan(SmallPlan().view());
  const std::vector<std::byte> copy(block.bytes().begin(), block.bytes().end());
  const DeviceBatch batch = block.batch_at(copy.data());
  EXPECT_TRUE(is_inside(std::span(copy), batch.page_ids));
  EXPECT_TRUE(is_inside(std::span(copy), batch.plans[0].token_empty));
  EXPECT_EQ(batch.page_ids[3], 9u);
  EXPECT_EQ(batch.plans[0].items[0].key_count, 20u);
  EXPECT_EQ(batch.plans[0].header->items, 1u);
}

TEST(StepBlock, ForADeviceTheFirstPagesOfEachItemStandBesideIt) {
  struct Copy : DeviceCopy {
    std::byte* data() const override { return nullptr; }
  };
  StepBlock block =
      StepBlock::create(kLimits, *Buffer::create(StepBlock::bytes_max(kLimits)), std::make_shared<Copy>());
  block.layout(2, 2, 1, 16);
  for (uint32_t i = 0; i < 16; ++i) block.page_ids()[i] = 100 + i;
  SmallPlan plan;
  plan.items = {{0, 1, 3, 0, 33, 0, attention::kFold}, {1, 1, 4, 0, 12 * 16, 1, attention::kFold}};
  block.set_plan(plan.view());
  const std::vector<PageId> expected{103, 104, 105, 105, 105, 105, 105, 105, 104, 105, 106, 107, 108, 109, 110, 111};
  const std::span<const PageId> found = block.host_batch().plans[0].first_pages;
  EXPECT_EQ(std::vector<PageId>(found.begin(), found.end()), expected);
}

TEST(StepBlock, APendingTokenSaysItsRowAndIsNoTokensId) {
  for (const uint32_t row : {0u, 1u, 63u, 1023u, 1u << 20}) {
    EXPECT_LT(pending_token(row), 0);
    EXPECT_EQ(pending_row(pending_token(row)), row);
  }
}

TEST(StepBlock, ANewLayoutForgetsThePlanOfTheLastStep) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(2, 2, 1, 4);
  block->set_plan(SmallPlan().view());
  block->layout(1, 1, 1, 1);
  EXPECT_TRUE(block->host_batch().plans[0].items.empty());
}

TEST(StepBlock, HoldsTheLargestPlanOfItsLimits) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  block->layout(4, 16, 4, 32);
  const attention::PlanLimits limits = kLimits.plan_limits();
  const std::vector<attention::WorkItem> items(limits.items_max());
  const std::vector<uint32_t> tokens(16), indptr(17), slots(limits.partials_max());
  const std::vector<uint8_t> empty(16);
  block->set_plan({items, tokens, tokens, indptr, slots, empty, limits.partials_max(), 64, 0, {}});
  EXPECT_EQ(block->host_batch().plans[0].items.size(), items.size());
}

TEST(StepBlock, EveryPlanOfAStepHasItsOwnHeaderAndArrays) {
  StepLimits limits = kLimits;
  limits.plans = 2;
  Result<StepBlock> block = StepBlock::create(limits);
  block->layout(2, 2, 1, 4);
  SmallPlan first, second;
  second.items = {{0, 1, 0, 16, 4, 0, attention::kDirect}, {1, 1, 0, 0, 20, 0, attention::kDirect}};
  second.positions = {3, 4};
  block->set_plan(first.view(), 0);
  block->set_plan(second.view(), 1);
  const std::vector<std::byte> copy(block->bytes().begin(), block->bytes().end());
  const DeviceBatch batch = block->batch_at(copy.data());
  EXPECT_EQ(batch.plans[0].items.size(), 1u);
  EXPECT_EQ(batch.plans[0].token_position[0], 19u);
  EXPECT_EQ(batch.plans[1].items[1].key_count, 20u);
  EXPECT_EQ(batch.plans[1].token_position[1], 4u);
  EXPECT_EQ(batch.plans[1].items_max, limits.plan_limits().items_max());
  EXPECT_EQ(batch.plans[0].header->items, 1u);
  EXPECT_EQ(batch.plans[1].header->items, 2u);
  EXPECT_EQ(batch.plans[1].header->tokens, 2u);
  EXPECT_TRUE(is_inside(std::span(copy), batch.plans[1].token_empty));
  EXPECT_TRUE(is_inside(std::span(copy), batch.page_ids));
}

TEST(StepBlock, ASecondPlanMovesNothingButThePageIds) {
  StepLimits limits = kLimits;
  limits.plans = 2;
  StepBlock one = StepBlock::create(kLimits).value(), two = StepBlock::create(limits).value();
  const auto offset = [](const StepBlock& block, const auto& array) {
    return reinterpret_cast<const std::byte*>(array.data()) - block.bytes().data();
  };
  for (StepBlock* block : {&one, &two}) {
    block->layout(2, 2, 1, 4);
    block->set_plan(SmallPlan().view());
  }
  const DeviceBatch of_one = one.host_batch(), of_two = two.host_batch();
  EXPECT_EQ(offset(one, of_one.plans[0].items), offset(two, of_two.plans[0].items));
  EXPECT_EQ(offset(one, of_one.plans[0].token_empty), offset(two, of_two.plans[0].token_empty));
  EXPECT_EQ(offset(one, of_one.token_ids), offset(two, of_two.token_ids));
  EXPECT_EQ(offset(one, of_one.logits_tokens), offset(two, of_two.logits_tokens));
  EXPECT_LT(offset(one, of_one.page_ids), offset(two, of_two.page_ids));
  EXPECT_EQ(of_one.plans[1].header, nullptr);
}

TEST(StepBlockDeath, AStepBeyondTheLimitsIsABug) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  EXPECT_DEATH(block->layout(5, 5, 1, 5), "larger than its limits");
  EXPECT_DEATH(block->layout(4, 17, 1, 5), "larger than its limits");
  EXPECT_DEATH(block->layout(4, 16, 5, 5), "larger than its limits");
  block->layout(1, 1, 1, 1);
  EXPECT_DEATH(block->set_plan(SmallPlan().view(), 1), "beyond StepLimits::plans");
}

TEST(StepBlock, RecordedRowsAreFewSizesAndAtLeastAsMany) {
  std::set<uint32_t> sizes;
  for (uint32_t rows = 1; rows <= 256; ++rows) {
    EXPECT_GE(recorded_rows(rows), rows);
    EXPECT_LE(recorded_rows(rows), rows <= 16 ? 2 * rows : rows + 31);
    EXPECT_EQ(recorded_rows(recorded_rows(rows)), recorded_rows(rows));
    sizes.insert(recorded_rows(rows));
  }
  EXPECT_EQ(sizes.size(), 19u);
}

TEST(StepBlock, APaddedBatchHasMoreRowsInTheSamePlaces) {
  Result<StepBlock> block = StepBlock::create(kLimits);
  ASSERT_TRUE(block);
  block->layout(3, 3, 3, 6);
  const DeviceBatch batch = block->host_batch(), padded = batch.padded(4);
  EXPECT_EQ(padded.tokens, 4u);
  EXPECT_EQ(padded.sequences, 3u);
  EXPECT_EQ(padded.token_ids.size(), 4u);
  EXPECT_EQ(padded.token_ids.data(), batch.token_ids.data());
  EXPECT_EQ(padded.logits_tokens.size(), 4u);
  EXPECT_TRUE(is_inside(block->bytes(), padded.positions));
  EXPECT_TRUE(is_inside(block->bytes(), padded.append_pages));
  EXPECT_TRUE(is_inside(block->bytes(), padded.append_slots));
}

}  // namespace
}  // namespace headwater::ops
