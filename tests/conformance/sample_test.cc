#include <gtest/gtest.h>

#include <limits>

#include "conformance/matrices.h"
#include "conformance/targets.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kVocabulary = 500;

class Sample : public TargetTest {
 protected:
  void SetUp() override {
    TargetTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    EXPECT_TRUE(backend_->reserve_scratch({8, 8, 1, 16, 8}, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, kVocabulary));
  }
};

TEST_P(Sample, ChoosesWhatSampleRowChoosesForEachRow) {
  Random random(1);
  HostMatrix logits(8, kVocabulary, 3);
  logits.fill(random, 3);
  std::vector<ops::SampleRow> rows(8);
  const std::vector<TokenId> banned{1, 2, 3};
  for (uint32_t i = 0; i < 8; ++i) {
    rows[i] = {.temperature = i % 3 == 0 ? 0.0f : 0.8f,
               .top_k = i * 5,
               .top_p = 0.9f,
               .seed = i,
               .banned = banned,
               .want_logprob = true,
               .top_logprobs = i};
  }
  BackendMemory memory(*backend_);
  backend_->sample({memory.put(logits), rows});
  const Result<std::span<const ops::Sampled>> sampled = backend_->collect();
  ASSERT_TRUE(sampled) << sampled.status().message();
  ASSERT_EQ(sampled->size(), 8u);
  Result<ops::SampleScratch> scratch = ops::SampleScratch::create(kVocabulary);
  for (uint32_t i = 0; i < 8; ++i) {
    const Result<ops::Sampled> expected = ops::sample_row({logits.row(i), kVocabulary}, rows[i], *scratch);
    EXPECT_EQ((*sampled)[i].token, expected->token);
    EXPECT_EQ((*sampled)[i].logprob, expected->logprob);
    EXPECT_EQ((*sampled)[i].top_count, i);
  }
}

TEST_P(Sample, ABrokenRowSaysSoAndItsNeighbourIsNotTouched) {
  Random random(2);
  HostMatrix logits(2, kVocabulary);
  logits.fill(random);
  const std::vector<ops::SampleRow> rows(2);
  logits.row(1)[7] = std::numeric_limits<float>::quiet_NaN();
  BackendMemory memory(*backend_);
  backend_->sample({memory.put(logits), rows});
  const Result<std::span<const ops::Sampled>> sampled = backend_->collect();
  ASSERT_TRUE(sampled);
  EXPECT_EQ((*sampled)[0].error, ErrorCode::kOk);
  EXPECT_GE((*sampled)[0].token, 0);
  EXPECT_EQ((*sampled)[1].error, ErrorCode::kInternal);
  EXPECT_EQ((*sampled)[1].token, -1);
}

INSTANTIATE_TEST_SUITE_P(Targets, Sample, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace headwater::testing
