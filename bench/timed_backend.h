// A Backend that forwards to another and adds up the wall time of each kind of operation. Right for back ends whose
// operations finish before they return (reference, cpu); on a device it would time the enqueueing.
#pragma once

#include <array>
#include <memory>

#include "ops/backend.h"

namespace headwater::bench {

enum class Kind : uint8_t { kEmbed, kNorm, kMatmul, kRopeAppend, kAttend, kMerge, kSiluMul, kGather, kSample, kCopy };
inline constexpr size_t kKinds = 10;

class TimedBackend final : public ops::Backend {
 public:
  explicit TimedBackend(std::unique_ptr<ops::Backend> backend) : backend_(std::move(backend)) {}

  int64_t nanoseconds(Kind kind) const { return nanoseconds_[static_cast<size_t>(kind)]; }
  int64_t attention_nanoseconds() const { return nanoseconds(Kind::kAttend) + nanoseconds(Kind::kMerge); }

  const ops::BackendInfo& info() const override { return backend_->info(); }
  attention::CostModel cost_model(const ops::KvShape& shape, uint32_t q_heads) const override {
    return backend_->cost_model(shape, q_heads);
  }
  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override {
    return backend_->create_kv_pool(shape);
  }
  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view) override { return backend_->prepare(view); }
  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns) override { return backend_->allocate(rows, columns); }
  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                         uint32_t vocabulary) override {
    return backend_->reserve_scratch(limits, shape, q_heads, vocabulary);
  }
  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override { return backend_->begin_step(block); }
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override {
    timed(Kind::kCopy, [&] { backend_->copy_pages(pool, from, to); });
  }
  void embed(const ops::EmbedParams& p) override {
    timed(Kind::kEmbed, [&] { backend_->embed(p); });
  }
  void add_norm(const ops::AddNormParams& p) override {
    timed(Kind::kNorm, [&] { backend_->add_norm(p); });
  }
  void matmul(const ops::MatmulParams& p) override {
    timed(Kind::kMatmul, [&] { backend_->matmul(p); });
  }
  void rope_append(const ops::RopeAppendParams& p) override {
    timed(Kind::kRopeAppend, [&] { backend_->rope_append(p); });
  }
  void attend(const ops::AttentionParams& p) override {
    timed(Kind::kAttend, [&] { backend_->attend(p); });
  }
  void merge(const ops::AttentionParams& p) override {
    timed(Kind::kMerge, [&] { backend_->merge(p); });
  }
  void silu_mul(const ops::SiluMulParams& p) override {
    timed(Kind::kSiluMul, [&] { backend_->silu_mul(p); });
  }
  void gather_rows(const ops::GatherRowsParams& p) override {
    timed(Kind::kGather, [&] { backend_->gather_rows(p); });
  }
  void sample(const ops::SampleParams& p) override {
    timed(Kind::kSample, [&] { backend_->sample(p); });
  }
  Result<std::span<const ops::Sampled>> collect() override { return backend_->collect(); }
  Status finish() override { return backend_->finish(); }
  uint64_t take_kv_bytes_read() override { return backend_->take_kv_bytes_read(); }
  ops::Peaks measure_peaks(uint32_t group) override { return backend_->measure_peaks(group); }

 private:
  template <typename F>
  void timed(Kind kind, F&& operation) {
    const int64_t begin = clock_.now_ns();
    operation();
    nanoseconds_[static_cast<size_t>(kind)] += clock_.now_ns() - begin;
  }

  std::unique_ptr<ops::Backend> backend_;
  SystemClock clock_;
  std::array<int64_t, kKinds> nanoseconds_{};
};

}  // namespace headwater::bench
