#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "backend/cpu/dense_test_kit.h"

namespace headwater::backend::cpu {
namespace {

class CpuBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ops::StepLimits limits{
        .sequences_max = 4, .tokens_max = 8, .pages_per_sequence_max = 4, .page_size = 16, .logits_max = 4};
    const ops::KvShape shape{.layers = 1, .kv_heads = 1, .head_dim = 16, .v_head_dim = 16, .page_size = 16, .pages = 8};
    ASSERT_TRUE(backend_->reserve_scratch(limits, shape, 1, 100));
  }

  std::unique_ptr<ops::Backend> backend_ = std::move(create({.threads = 2})).value();
};

TEST_F(CpuBackendTest, DescribesItself) {
  EXPECT_EQ(backend_->info().name, "cpu");
  EXPECT_EQ(backend_->info().target, to_string(*choose_target("")));
  EXPECT_EQ(backend_->info().workers, 2u);
  EXPECT_TRUE(backend_->info().invariant);
}

TEST_F(CpuBackendTest, NeedsTheFileOnlyUntilPrepareReturns) {
  auto file = std::make_unique<FileWeight>(DType::kQ4_1, 32, 64, 1);
  const auto weight = std::move(backend_->prepare(file->view)).value();
  const std::vector<float> expected = file->values;
  std::fill(file->bytes.begin(), file->bytes.end(), std::byte{0xff});
  file.reset();
  const ops::Matrix out = *backend_->allocate(1, 64);
  const std::vector<TokenId> tokens = {31};
  backend_->embed({tokens, weight.get(), out});
  EXPECT_EQ(std::memcmp(out.data, &expected[31 * 64], 64 * sizeof(float)), 0);
}

TEST_F(CpuBackendTest, MultipliesByWeightsPreparedAfterTheScratchWasReserved) {
  const FileWeight file(DType::kQ8_0, 16, 320, 1);
  const auto weight = std::move(backend_->prepare(file.view)).value();
  const ops::Matrix x = *backend_->allocate(8, 320), out = *backend_->allocate(8, 16);
  const ops::Product product{weight.get(), out};
  backend_->matmul({x, {&product, 1}});
  EXPECT_EQ(out.row(7)[15], 0.0f);  // x is zero
}

TEST_F(CpuBackendTest, SamplesEveryRowAndSaysWhichIsNotANumber) {
  const ops::Matrix logits = *backend_->allocate(3, 100);
  logits.row(0)[7] = logits.row(1)[99] = logits.row(2)[0] = 5.0f;
  const std::vector<ops::SampleRow> rows(3, ops::SampleRow{.temperature = 0.0f});
  backend_->sample({logits, rows});
  const auto sampled = *backend_->collect();
  ASSERT_EQ(sampled.size(), 3u);
  EXPECT_EQ(sampled[0].token, 7);
  EXPECT_EQ(sampled[1].token, 99);
  EXPECT_EQ(sampled[2].token, 0);

  logits.row(1)[50] = std::numeric_limits<float>::quiet_NaN();
  backend_->sample({logits, rows});
  const auto broken = *backend_->collect();
  EXPECT_EQ(broken[0].token, 7);
  EXPECT_EQ(broken[1].error, ErrorCode::kInternal);
  EXPECT_EQ(broken[1].token, -1);
  EXPECT_EQ(broken[2].token, 0);
}

TEST(CpuBackend, TakesTheTargetOfTheOptionThenOfTheEnvironment) {
  ::setenv("HEADWATER_CPU_TARGET", "scalar", 1);
  EXPECT_EQ((*create({.threads = 1}))->info().target, "scalar");
  ::setenv("HEADWATER_CPU_TARGET", "sse9", 1);
  EXPECT_EQ((*create({.threads = 1, .cpu_target = "scalar"}))->info().target, "scalar");
  EXPECT_EQ(create({.threads = 1}).status().code(), ErrorCode::kInvalidArgument);
  ::unsetenv("HEADWATER_CPU_TARGET");
}

}  // namespace
}  // namespace headwater::backend::cpu
