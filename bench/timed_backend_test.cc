#include "bench/timed_backend.h"

#include <gtest/gtest.h>

#include <string>

namespace headwater::bench {
namespace {

// A device that writes down what runs: a letter an operation.
class Writer final : public ops::Backend {
 public:
  explicit Writer(std::string& ran) : ran_(ran) {}

  class Script final : public ops::Recording {
   public:
    Script(std::string letters, std::string& ran) : letters_(std::move(letters)), ran_(ran) {}
    bool replay() override {
      ran_ += letters_;
      return true;
    }

   private:
    std::string letters_;
    std::string& ran_;
  };
  Result<std::unique_ptr<ops::Recording>> record(const std::function<void()>& work) override {
    const std::string before = ran_;
    work();
    auto script = std::make_unique<Script>(ran_.substr(before.size()), ran_);
    ran_ = before;
    return std::unique_ptr<ops::Recording>(std::move(script));
  }
  void embed(const ops::EmbedParams&) override { ran_ += 'e'; }
  void add_norm(const ops::AddNormParams&) override { ran_ += 'n'; }
  void matmul(const ops::MatmulParams& p) override { ran_ += p.x.columns == 64 ? 'p' : 'P'; }
  Status finish() override { return {}; }

  const ops::BackendInfo& info() const override { return info_; }
  attention::CostModel cost_model(const ops::KvShape&, uint32_t) const override { return {}; }
  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape&) override { return nothing(); }
  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView&) override { return nothing(); }
  Result<ops::Matrix> allocate(uint32_t, uint32_t) override { return nothing(); }
  void release(const ops::Matrix&) override {}
  Status reserve_scratch(const ops::StepLimits&, const ops::KvShape&, uint32_t, uint32_t) override { return {}; }
  Result<ops::DeviceBatch> begin_step(const ops::StepBlock&) override { return nothing(); }
  void copy_pages(ops::KvPool&, std::span<const PageId>, std::span<const PageId>) override {}
  void rope_append(const ops::RopeAppendParams&) override {}
  void attend(const ops::AttentionParams&) override {}
  void merge(const ops::AttentionParams&) override {}
  void gate_mul(const ops::GateMulParams&) override {}
  void mix_experts(const ops::MixExpertsParams&) override {}
  void cap_logits(const ops::CapLogitsParams&) override {}
  void gather_rows(const ops::GatherRowsParams&) override {}
  void sample(const ops::SampleParams&) override {}
  Result<std::span<const ops::Sampled>> collect() override { return nothing(); }
  uint64_t take_kv_bytes_read() override { return 0; }

 private:
  static Status nothing() { return error(ErrorCode::kUnsupported, "the writer has nothing of the kind"); }

  std::string& ran_;
  ops::BackendInfo info_{};
};

class TimedBackendTest : public ::testing::Test {
 protected:
  // Two layers: a norm and two products of different shapes each.
  void enqueue() {
    const ops::Weight small(32, 64, DType::kBF16), large(64, 128, DType::kBF16);
    const ops::Product one[] = {{&small, {}}}, other[] = {{&large, {}}};
    timed_.embed({});
    for (int layer = 0; layer < 2; ++layer) {
      timed_.add_norm({.residual = {nullptr, 3, 64, 64}, .delta = {}, .weight = nullptr, .epsilon = 0, .out = {}});
      timed_.matmul({{nullptr, 3, 64, 64}, one});
      timed_.matmul({{nullptr, 3, 128, 128}, other});
    }
  }

  std::string ran_;
  TimedBackend timed_{std::make_unique<Writer>(ran_)};
};

TEST_F(TimedBackendTest, TimesEachKindOfARecordedStepAlone) {
  timed_.record_kinds();
  const auto recording = timed_.record([&] { enqueue(); });
  ASSERT_TRUE(recording) << recording.status().message();
  EXPECT_TRUE(ran_.empty()) << "recording runs nothing";
  EXPECT_EQ(timed_.totals().of(Kind::kNorm).bytes, 2u * 2 * 3 * 64 * 4) << "the step is counted once";
  const Result<WorkTotals> kinds = timed_.time_kinds();
  ASSERT_TRUE(kinds) << kinds.status().message();
  std::string expected;
  for (const char* kind : {"e", "nn", "pp", "PP"}) {
    for (int i = 0; i < 21; ++i) expected += kind;  // one to warm up
  }
  EXPECT_EQ(ran_, expected);
  EXPECT_EQ(kinds->products[0].columns, 64u);
  EXPECT_EQ(kinds->products[0].work.bytes, 2u * 32 * 64 * 2);
  EXPECT_EQ(kinds->products[0].work.multiply_adds, 2u * 3 * 32 * 64);
  EXPECT_EQ(kinds->products[0].work.byte_multiply_adds, 0u);
  EXPECT_EQ(kinds->products[1].columns, 128u);
  ran_.clear();
  EXPECT_TRUE((*recording)->replay());
  EXPECT_EQ(ran_, "enpPnpP");
}

TEST_F(TimedBackendTest, AsksForStepsThatWereRecordedBeforeToBeRecordedAgain) {
  const auto before = timed_.record([&] { enqueue(); });
  ASSERT_TRUE(before);
  EXPECT_TRUE((*before)->replay());
  EXPECT_FALSE(timed_.time_kinds()) << "nobody asked for its kinds";
  timed_.record_kinds();
  EXPECT_FALSE((*before)->replay());
  EXPECT_EQ(timed_.time_kinds().status().code(), ErrorCode::kInternal);
}

}  // namespace
}  // namespace headwater::bench
