// Every row against ops::sample_row(), to the bit. Skipped without a GPU.
#include "backend/cuda/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/logit_blocks.h"

namespace headwater::backend::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::vector<float> logits;
  std::vector<ops::LogitBias> bias;
  std::vector<TokenId> banned, prompt, generated;
  ops::SampleRow row;

  ops::SampleRow with_lists() const {
    ops::SampleRow whole = row;
    whole.bias = bias, whole.banned = banned, whole.prompt = prompt, whole.generated = generated;
    return whole;
  }
};

std::string description(const Case& c) {
  const ops::SampleRow& row = c.row;
  return fmt::format(
      "temperature {}, top_k {}, top_p {}, min_p {}, penalties {} {} {}, seed {}, position {}, {} biases, {} banned, "
      "{} "
      "prompt, {} generated, logprob {}, top {}",
      row.temperature, row.top_k, row.top_p, row.min_p, row.repetition_penalty, row.frequency_penalty,
      row.presence_penalty, row.seed, row.position, c.bias.size(), c.banned.size(), c.prompt.size(), c.generated.size(),
      row.want_logprob, row.top_logprobs);
}

class CaseMaker {
 public:
  explicit CaseMaker(uint64_t seed) : random_(seed) {}

  Case make(uint32_t vocabulary) {
    Case c;
    c.logits = logits(vocabulary);
    c.row = {.temperature = one_of({0, 0, 0.01f, 0.7f, 1, 1, 3, 1e20f, 1e-30f}),
             .top_k = any({0u, 0u, 0u, 1u, 2u, 50u, 700u, vocabulary - 1, vocabulary, vocabulary + 1}),
             .top_p = one_of({1, 1, 0.9f, 0.95f, 0.5f, 0.1f, 1e-7f, 0, 0.999f, 0.99999994f}),
             .min_p = one_of({0, 0, 0, 0, 0.05f, 1e-6f, 1e-30f, 1}),
             .seed = random_(),
             .choice = random_.below(3),
             .position = random_.below(5000),
             .want_logprob = random_.below(3) == 0,
             .top_logprobs = any({0u, 0u, 0u, 1u, 5u, ops::kLogprobsMax})};
    if (random_.below(3) == 0) add_lists(c, vocabulary);
    return c;
  }

 private:
  uint32_t any(std::initializer_list<uint32_t> values) { return values.begin()[below(values.size())]; }
  float one_of(std::initializer_list<float> values) { return values.begin()[below(values.size())]; }
  uint32_t below(size_t bound) { return random_.below(static_cast<uint32_t>(bound)); }

  // Flat, peaked, on a coarse grid, of few bits, equal, mostly -inf, two levels; far from zero; broken.
  std::vector<float> logits(uint32_t vocabulary) {
    const uint32_t shape = random_.below(7), damage = random_.below(20);
    const float offset = one_of({0, 0, 30, -30, 1e6});
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) logit = offset + value(shape);
    float& victim = logits[random_.below(vocabulary)];
    if (shape == 5) victim = offset;
    if (damage == 0) victim = kNan;
    if (damage == 1) victim = kInfinity;
    if (damage == 2) std::ranges::fill(logits, -kInfinity);
    if (damage == 3) victim = -kInfinity;
    return logits;
  }

  float value(uint32_t shape) {
    if (shape == 4) return 1.5f;
    if (shape == 6) return random_.below(3) == 0 ? 0.0f : -60.0f;
    const float uniform = random_.uniform() + random_.uniform() + random_.uniform() + random_.uniform() - 2;
    if (shape == 0) return uniform;
    if (shape == 1) return 12 * uniform;
    if (shape == 2) return std::round(4 * uniform) / 2;
    if (shape == 3) return std::bit_cast<float>(std::bit_cast<uint32_t>(12 * uniform) & 0xffff0000u);
    return random_.below(10) == 0 ? uniform : -kInfinity;
  }

  void add_lists(Case& c, uint32_t vocabulary) {
    const auto ids = [&](uint32_t most) {
      std::vector<TokenId> list(random_.below(most + 1));
      const uint32_t range = std::min(vocabulary, any({5u, 300u, vocabulary}));
      for (TokenId& id : list) id = static_cast<TokenId>(random_.below(range));
      return list;
    };
    for (const TokenId id : ids(any({0u, 10u, 400u}))) c.bias.push_back({id, 20 * random_.uniform() - 10});
    c.banned = ids(any({0u, 0u, 3u, 200u}));
    c.prompt = ids(any({0u, 100u, 6000u}));
    c.generated = ids(any({0u, 100u, 2000u}));
    c.row.repetition_penalty = one_of({1, 1, 1.3f, 0.8f});
    c.row.frequency_penalty = one_of({0, 0, 0.3f, -0.2f});
    c.row.presence_penalty = one_of({0, 0, 1.1f});
    if (random_.below(30) == 0) {  // nothing is left
      c.banned.resize(vocabulary);
      for (uint32_t i = 0; i < vocabulary; ++i) c.banned[i] = static_cast<TokenId>(i);
    }
  }

  Random random_;
};

class SamplerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<DeviceTraits> traits = device_traits();
    if (!traits && traits.status().code() == ErrorCode::kUnsupported) GTEST_SKIP() << traits.status().message();
    Result<Stream> stream = Stream::create();
    ASSERT_TRUE(stream) << stream.status().message();
    stream_ = std::move(*stream);
  }

  // Rows `stride` apart, with NaN between them.
  ops::Matrix upload(const std::vector<Case>& cases, uint32_t slack) {
    const auto vocabulary = static_cast<uint32_t>(cases[0].logits.size());
    const uint64_t stride = vocabulary + slack;
    values_.assign(cases.size() * stride, kNan);
    for (size_t i = 0; i < cases.size(); ++i) {
      std::ranges::copy(cases[i].logits, values_.begin() + static_cast<ptrdiff_t>(i * stride));
    }
    Result<DeviceBuffer> buffer = DeviceBuffer::create(values_.size() * sizeof(float));
    EXPECT_TRUE(buffer) << buffer.status().message();
    logits_ = std::move(*buffer);
    EXPECT_EQ(cudaMemcpy(logits_.data(), values_.data(), logits_.size(), cudaMemcpyHostToDevice), cudaSuccess);
    return {logits_.as<float>(), static_cast<uint32_t>(cases.size()), vocabulary, stride};
  }

  std::vector<ops::Sampled> sample(const std::vector<Case>& cases, uint32_t slack = 0) {
    const ops::Matrix logits = upload(cases, slack);
    EXPECT_TRUE(sampler_.reserve(logits.rows, logits.columns));
    {
      std::vector<ops::SampleRow> rows;
      for (const Case& c : cases) rows.push_back(c.with_lists());
      const Status status = sampler_.sample(logits, rows, stream_.get());
      EXPECT_TRUE(status) << status.message();
    }
    const Result<std::span<const ops::Sampled>> sampled = sampler_.collect();
    EXPECT_TRUE(sampled) << sampled.status().message();
    if (!sampled) return std::vector<ops::Sampled>(cases.size());
    expect_logits_as_before();
    std::vector<TokenId> tokens(cases.size());
    EXPECT_EQ(cudaMemcpy(tokens.data(), sampler_.tokens(), 4 * tokens.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(std::max(tokens[i], -1), (*sampled)[i].token);
    return {sampled->begin(), sampled->end()};
  }

  void expect_logits_as_before() {
    std::vector<float> after(values_.size());
    EXPECT_EQ(cudaMemcpy(after.data(), logits_.data(), logits_.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(std::memcmp(after.data(), values_.data(), logits_.size()), 0);
  }

  void expect_as_on_the_host(const std::vector<Case>& cases, const std::vector<ops::Sampled>& got) {
    Result<ops::SampleScratch> scratch = ops::SampleScratch::create(static_cast<uint32_t>(cases[0].logits.size()));
    ASSERT_EQ(got.size(), cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(fmt::format("row {} of {}: {}", i, cases[i].logits.size(), description(cases[i])));
      const Result<ops::Sampled> want = ops::sample_row(cases[i].logits, cases[i].with_lists(), *scratch);
      const ops::Sampled failed{.error = want ? ErrorCode::kOk : want.status().code()};
      ASSERT_NO_FATAL_FAILURE(expect_equal(want ? *want : failed, got[i]));
    }
  }

  static void expect_equal(const ops::Sampled& want, const ops::Sampled& got) {
    ASSERT_EQ(got.error, want.error);
    ASSERT_EQ(got.token, want.token);
    ASSERT_EQ(got.logprob, want.logprob);
    ASSERT_EQ(got.top_count, want.top_count);
    for (uint32_t i = 0; i < want.top_count; ++i) {
      ASSERT_EQ(got.top[i].token, want.top[i].token) << i;
      ASSERT_EQ(got.top[i].logprob, want.top[i].logprob) << i;
    }
  }

  Stream stream_;
  Sampler sampler_;

 private:
  std::vector<float> values_;  // of logits_, as they were uploaded
  DeviceBuffer logits_;
};

TEST_F(SamplerTest, ChoosesForEveryRowOfAMixedBatchWhatTheHostChooses) {
  struct Batches {
    uint32_t vocabulary, batches, rows;
  };
  for (const auto& [vocabulary, batches, rows] : std::initializer_list<Batches>{
           {1, 2, 50}, {63, 10, 40}, {64, 10, 40}, {65, 10, 40}, {1000, 10, 60}, {49152, 3, 32}, {151936, 2, 32}}) {
    for (uint32_t batch = 0; batch < batches; ++batch) {
      const uint64_t seed = uint64_t{vocabulary} * 100 + batch;
      SCOPED_TRACE(fmt::format("seed {}", seed));
      CaseMaker maker(seed);
      std::vector<Case> cases(rows);
      for (Case& c : cases) c = maker.make(vocabulary);
      ASSERT_NO_FATAL_FAILURE(expect_as_on_the_host(cases, sample(cases, batch % 3)));
    }
  }
}

TEST_F(SamplerTest, ARowDoesNotDependOnItsBatch) {
  CaseMaker maker(7);
  std::vector<Case> cases(24);
  for (Case& c : cases) c = maker.make(5000);
  const std::vector<ops::Sampled> together = sample(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(description(cases[i]));
    ASSERT_NO_FATAL_FAILURE(expect_equal(together[i], sample({cases[i]})[0]));
  }
}

TEST_F(SamplerTest, ManyDrawsFromOneRowAreThoseOfTheHost) {
  for (const ops::SampleRow& row : {ops::SampleRow{}, ops::SampleRow{.temperature = 1.7f, .top_p = 0.95f},
                                    ops::SampleRow{.temperature = 0.8f, .top_k = 40, .top_p = 0.9f}}) {
    std::vector<Case> cases(256);
    CaseMaker maker(11);
    for (uint32_t i = 0; i < cases.size(); ++i) {
      cases[i].logits = i == 0 ? maker.make(4097).logits : cases[0].logits;
      cases[i].row = row;
      cases[i].row.position = i;
    }
    ASSERT_NO_FATAL_FAILURE(expect_as_on_the_host(cases, sample(cases)));
  }
}

TEST_F(SamplerTest, TheLargestVocabularyOfEqualLogitsIsDrawnFrom) {
  std::vector<Case> cases(3);
  for (Case& c : cases) c.logits.assign(ops::kVocabularyMax, -7.5f);
  cases[0].row = {.seed = 3};
  cases[1].row = {.top_p = 0.7f, .seed = 4, .top_logprobs = ops::kLogprobsMax};
  cases[2].row = {.top_k = 100000, .seed = 5};
  ASSERT_NO_FATAL_FAILURE(expect_as_on_the_host(cases, sample(cases)));
}

TEST_F(SamplerTest, TwoStepsOnTheirWayAreCollectedInTheirOrder) {
  CaseMaker maker(12);
  for (int i = 0; i < 20; ++i) {
    std::vector<Case> cases{maker.make(5000), maker.make(5000)};
    const ops::Matrix logits = upload(cases, 0);
    ASSERT_TRUE(sampler_.reserve(2, 5000));
    std::vector<Case> first = cases;
    for (Case& c : first) c.row = {.temperature = 0.9f, .seed = static_cast<uint64_t>(i), .top_logprobs = 3};
    if (i % 2 == 0) first[1].banned.resize(100u << i / 2);  // more than ever: what holds the lists moves
    const std::vector<ops::SampleRow> rows_first{first[0].with_lists(), first[1].with_lists()},
        rows{cases[0].with_lists(), cases[1].with_lists()};
    ASSERT_TRUE(sampler_.sample(logits, rows_first, stream_.get()));
    ASSERT_TRUE(sampler_.sample(logits, rows, stream_.get()));
    for (const std::vector<Case>* asked : {&first, &cases}) {
      const Result<std::span<const ops::Sampled>> sampled = sampler_.collect();
      ASSERT_TRUE(sampled) << sampled.status().message();
      ASSERT_NO_FATAL_FAILURE(expect_as_on_the_host(*asked, {sampled->begin(), sampled->end()}));
    }
  }
}

TEST_F(SamplerTest, AStepThatNobodyCollectsIsForgottenAndFollowedByAnother) {
  CaseMaker maker(9);
  std::vector<Case> cases{maker.make(1000), maker.make(1000)};
  const ops::Matrix logits = upload(cases, 0);
  ASSERT_TRUE(sampler_.reserve(2, 1000));
  const std::vector<ops::SampleRow> lost(2, ops::SampleRow{.seed = 1}),
      rows{cases[0].with_lists(), cases[1].with_lists()};
  ASSERT_TRUE(sampler_.sample(logits, lost, stream_.get()));
  ASSERT_TRUE(stream_.wait());
  sampler_.forget();
  ASSERT_TRUE(sampler_.sample(logits, rows, stream_.get()));
  const Result<std::span<const ops::Sampled>> sampled = sampler_.collect();
  ASSERT_TRUE(sampled) << sampled.status().message();
  ASSERT_NO_FATAL_FAILURE(expect_as_on_the_host(cases, {sampled->begin(), sampled->end()}));
}

TEST_F(SamplerTest, NoRowsAreNoWork) {
  ASSERT_TRUE(sampler_.reserve(2, 1000));
  ASSERT_TRUE(sampler_.sample({}, {}, stream_.get()));
  const Result<std::span<const ops::Sampled>> sampled = sampler_.collect();
  ASSERT_TRUE(sampled);
  EXPECT_TRUE(sampled->empty());
}

TEST_F(SamplerTest, AVocabularyBeyondTheSumsIsRefused) {
  const Status status = sampler_.reserve(1, ops::kVocabularyMax + 1);
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace headwater::backend::cuda
