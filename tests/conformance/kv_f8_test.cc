// 8-bit KV pages: what a token reads back depends on that token alone.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "conformance/random_plan.h"
#include "conformance/targets.h"
#include "ops/ops.h"
#include "support/compare.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kKvHeads = 2, kWidth = 64, kPageSize = 16, kPages = 3;
constexpr uint32_t kColumns = kKvHeads * kWidth;

class EightBitKv : public TargetTest {
 protected:
  void SetUp() override {
    TargetTest::SetUp();
    const ops::KvShape shape{1, kKvHeads, kWidth, kWidth, kPageSize, kPages, DType::kF8E4M3};
    limits_ = {1, kPageSize, 1, kPageSize, 1};
    ASSERT_TRUE(backend_->reserve_scratch(limits_, shape, kKvHeads, 32));
    Result<std::unique_ptr<ops::KvPool>> pool = backend_->create_kv_pool(shape);
    ASSERT_TRUE(pool) << pool.status().message();
    pool_ = std::move(pool).value();
  }

  ops::Matrix matrix(uint32_t rows, const std::vector<float>& values) {
    const Result<ops::Matrix> matrix = backend_->allocate(rows, static_cast<uint32_t>(values.size()) / rows);
    check(matrix.is_ok() && backend_->upload(*matrix, values).is_ok(), "a matrix");
    return *matrix;
  }

  // One step: the rows of `slots` out of keys and values [kPageSize][kColumns].
  void append(PageId page, const std::vector<uint32_t>& slots, const std::vector<float>& keys,
              const std::vector<float>& values) {
    const auto tokens = static_cast<uint32_t>(slots.size());
    Result<ops::StepBlock> block = ops::StepBlock::create(limits_);
    block->layout(1, tokens, 0, 0);
    std::vector<float> k, v;
    for (uint32_t t = 0; t < tokens; ++t) {
      block->token_ids()[t] = 0;
      block->positions()[t] = 0;
      block->append_pages()[t] = page;
      block->append_slots()[t] = slots[t];
      const auto at = static_cast<ptrdiff_t>(slots[t] * kColumns);
      k.insert(k.end(), keys.begin() + at, keys.begin() + at + kColumns);
      v.insert(v.end(), values.begin() + at, values.begin() + at + kColumns);
    }
    const Result<ops::DeviceBatch> batch = backend_->begin_step(*block);
    backend_->rope_append({matrix(tokens, std::vector<float>(uint64_t{tokens} * kColumns)),
                           matrix(tokens, k),
                           matrix(tokens, v),
                           &*batch,
                           {ops::RopeStyle::kHalves, 0, nullptr},
                           pool_.get(),
                           0});
    ASSERT_TRUE(backend_->finish());
  }

  // All keys of a page under one query: out and lse2 of every head.
  std::vector<float> attend(PageId page, const std::vector<float>& query) {
    const std::vector<uint32_t> indptr{0, 1}, lengths{kPageSize};
    const std::vector<PageId> pages{page};
    const attention::PageTable table{kPageSize, indptr, pages, lengths, indptr, {}};
    PlanBuilder builder(table, {0}, cut_of(kPageSize), 0);
    builder.add_item(0, 1, 0, kPageSize, attention::kDirect);
    Result<ops::StepBlock> block = ops::StepBlock::create(limits_);
    block->layout(1, 1, 0, 1);
    block->page_ids()[0] = page;
    block->set_plan(builder.plan());
    const Result<ops::DeviceBatch> batch = backend_->begin_step(*block);
    const ops::Matrix out = matrix(1, std::vector<float>(kColumns)), lse2 = matrix(1, std::vector<float>(kKvHeads));
    const ops::AttentionParams params{matrix(1, query), out, lse2.data, &*batch, pool_.get(), 0, kKvHeads, {0.125f}};
    backend_->attend(params);
    backend_->merge(params);
    std::vector<float> result(kColumns + kKvHeads);
    EXPECT_TRUE(backend_->finish());
    EXPECT_TRUE(backend_->download({result.data(), kColumns}, out));
    EXPECT_TRUE(backend_->download({result.data() + kColumns, kKvHeads}, lse2));
    return result;
  }

  ops::StepLimits limits_;
  std::unique_ptr<ops::KvPool> pool_;
};

std::vector<float> rows(Random& random, float size) {
  std::vector<float> rows(uint64_t{kPageSize} * kColumns);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto slot = static_cast<float>(i / kColumns);
    rows[i] = size * (1 + slot) * random.normal();  // scales differ from slot to slot
  }
  return rows;
}

TEST_P(EightBitKv, AScaleDependsOnItsOwnRowAloneWhateverThePageHeldAndHoweverItWasFilled) {
  Random random(24);
  const std::vector<float> keys = rows(random, 0.1f), values = rows(random, 0.1f);
  std::vector<float> query(kColumns);
  for (float& x : query) x = random.normal();
  std::vector<uint32_t> order(kPageSize);
  std::iota(order.begin(), order.end(), 0u);
  append(0, order, keys, values);  // a fresh page, whole
  const std::vector<float> expected = attend(0, query);
  append(1, order, rows(random, 1e6f), rows(random, 1e6f));  // a page of large numbers, then token by token
  for (const uint32_t slot : order) append(1, {slot}, keys, values);
  EXPECT_TRUE(same_bits(attend(1, query), expected, 24, "over large numbers"));
  const std::vector<float> nan(uint64_t{kPageSize} * kColumns, std::numeric_limits<float>::quiet_NaN());
  append(2, order, nan, nan);  // a page of NaN, from its end, by threes
  for (uint32_t end = kPageSize; end > 0;) {
    const uint32_t count = std::min(3u, end);
    append(2, {order.begin() + end - count, order.begin() + end}, keys, values);
    end -= count;
  }
  EXPECT_TRUE(same_bits(attend(2, query), expected, 24, "over NaN, backwards"));
}

TEST_P(EightBitKv, NoWeightHasItsType) {
  const std::vector<std::byte> data(64);
  const auto weight = backend_->prepare({data.data(), DType::kF8E4M3, 1, 64});
  EXPECT_EQ(weight.status().code(), ErrorCode::kUnsupported);
  EXPECT_NE(weight.status().message().find("F8_E4M3"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Targets, EightBitKv, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace headwater::testing
