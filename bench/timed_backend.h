// A Backend that forwards to another and adds up the wall time of each kind of operation and what it had to move and
// compute. Right for back ends whose operations finish before they return (reference, cpu). On a device it times the
// enqueueing; there each kind of a recorded step can be recorded and timed alone.
#pragma once

#include <memory>

#include "bench/work_totals.h"
#include "ops/backend.h"

namespace headwater::bench {

class TimedBackend final : public ops::Backend {
 public:
  explicit TimedBackend(std::unique_ptr<ops::Backend> backend) : backend_(std::move(backend)) {}

  const WorkTotals& totals() const { return totals_; }
  int64_t attention_nanoseconds() const {
    return totals_.of(Kind::kAttend).nanoseconds + totals_.of(Kind::kMerge).nanoseconds;
  }

  // From now on each kind of work of a step is recorded alone, too, when the step is recorded; steps recorded before
  // are recorded again.
  void record_kinds();
  // The work of the last recorded step, each kind's time measured by replaying it alone, on what the step block holds
  // by now. Waits for the device and loses what was not collected; pages and activations hold anything afterwards.
  Result<WorkTotals> time_kinds();

  const ops::BackendInfo& info() const override { return backend_->info(); }
  attention::CostModel cost_model(const ops::KvShape& shape, uint32_t q_heads) const override {
    return backend_->cost_model(shape, q_heads);
  }
  ops::PoolMemory pool_memory() const override { return backend_->pool_memory(); }
  Result<std::unique_ptr<ops::Recording>> record(const std::function<void()>& work) override;
  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override {
    return backend_->create_kv_pool(shape);
  }
  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view) override { return backend_->prepare(view); }
  attention::DeviceShape device_shape(const ops::KvShape& shape, uint32_t q_heads) const override {
    return backend_->device_shape(shape, q_heads);
  }
  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns) override { return backend_->allocate(rows, columns); }
  Result<ops::Matrix> allocate_operand(uint32_t rows, uint32_t columns) override {
    return backend_->allocate_operand(rows, columns);
  }
  void release(const ops::Matrix& matrix) override { backend_->release(matrix); }
  Result<const float*> place(std::span<const float> values) override { return backend_->place(values); }
  Result<ops::StepBlock> create_step_block(const ops::StepLimits& limits) override {
    return backend_->create_step_block(limits);
  }
  Result<ops::StepBlock> create_twin(const ops::StepBlock& block) override { return backend_->create_twin(block); }
  Status upload(const ops::Matrix& to, std::span<const float> from) override { return backend_->upload(to, from); }
  Status download(std::span<float> to, const ops::Matrix& from) override { return backend_->download(to, from); }
  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                         uint32_t vocabulary) override {
    return backend_->reserve_scratch(limits, shape, q_heads, vocabulary);
  }
  Status reserve_experts(const ops::ExpertsShape& shape) override { return backend_->reserve_experts(shape); }
  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override {
    totals_.add_token_keys(block.page_table());
    return backend_->begin_step(block);
  }
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override {
    timed(Kind::kCopy, 0, [&] { backend_->copy_pages(pool, from, to); });
  }
  void embed(const ops::EmbedParams& p) override {
    timed(Kind::kEmbed, 0, [&] { backend_->embed(p); });
  }
  void add_norm(const ops::AddNormParams& p) override {
    const uint64_t passes = p.delta.data == nullptr ? 2 : 4;
    timed(Kind::kNorm, passes * bytes(p.residual), [&] { backend_->add_norm(p); });
  }
  void matmul(const ops::MatmulParams& p) override {
    timed(totals_.add_product(p, 0), [&] { backend_->matmul(p); });
  }
  void rope_append(const ops::RopeAppendParams& p) override {
    const uint64_t appended = p.q.rows * p.pool->shape().bytes_token_layer();
    timed(Kind::kRopeAppend, 2 * bytes(p.q) + bytes(p.k) + bytes(p.v) + appended, [&] { backend_->rope_append(p); });
  }
  void attend(const ops::AttentionParams& p) override {
    timed(Kind::kAttend, 0, [&] { backend_->attend(p); });
  }
  void merge(const ops::AttentionParams& p) override {
    timed(Kind::kMerge, 0, [&] { backend_->merge(p); });
  }
  void gate_mul(const ops::GateMulParams& p) override {
    timed(Kind::kGateMul, 3 * bytes(p.out), [&] { backend_->gate_mul(p); });
  }
  void gated_matmul(const ops::GatedMatmulParams& p) override {
    if (!backend_->info().records) return Backend::gated_matmul(p);  // both parts are timed
    const ops::Product products[] = {p.gate, p.up};
    timed(totals_.add_product({p.x, products}, 0), [&] { backend_->gated_matmul(p); });
  }
  void mix_experts(const ops::MixExpertsParams& p) override {
    timed(Kind::kExperts, 0, [&] { backend_->mix_experts(p); });
  }
  void cap_logits(const ops::CapLogitsParams& p) override {
    timed(Kind::kCap, 2 * bytes(p.logits), [&] { backend_->cap_logits(p); });
  }
  void gather_rows(const ops::GatherRowsParams& p) override {
    timed(Kind::kGather, 2 * bytes(p.out), [&] { backend_->gather_rows(p); });
  }
  void sample(const ops::SampleParams& p) override {
    timed(Kind::kSample, bytes(p.logits), [&] { backend_->sample(p); });
  }
  Result<std::span<const ops::Sampled>> collect() override { return backend_->collect(); }
  Status finish() override { return backend_->finish(); }
  uint64_t take_kv_bytes_read() override { return backend_->take_kv_bytes_read(); }
  Result<ops::Costs> measure_costs(double seconds) override { return backend_->measure_costs(seconds); }
  Status use_costs(const ops::Costs& costs) override { return backend_->use_costs(costs); }
  Result<std::unique_ptr<ops::Stopwatch>> create_stopwatch(std::function<void()> work, bool cold) override {
    return backend_->create_stopwatch(std::move(work), cold);
  }
  Result<double> read_floor_us(uint64_t bytes, uint32_t piece_bytes) override {
    return backend_->read_floor_us(bytes, piece_bytes);
  }
  Result<ops::Peaks> measure_peaks(uint32_t group) override { return backend_->measure_peaks(group); }

 private:
  static uint64_t bytes(const ops::Matrix& matrix) { return uint64_t{matrix.rows} * matrix.columns * sizeof(float); }

  template <typename F>
  void timed(Kind kind, uint64_t bytes, F&& operation) {
    totals_.of(kind).bytes += bytes;
    timed(static_cast<size_t>(kind), operation);
  }
  template <typename F>
  void timed(size_t place, F&& operation) {
    called_[place] = true;
    const int64_t begin = clock_.now_ns();
    if (alone_ == kEverything || alone_ == place) operation();
    totals_.at(place).nanoseconds += clock_.now_ns() - begin;
  }
  Status record_each_kind(const std::function<void()>& work);

  struct RecordedKinds {
    WorkTotals work;
    std::vector<std::pair<size_t, std::unique_ptr<ops::Recording>>> kinds;  // by place
  };
  static constexpr size_t kEverything = kPlaces, kNothing = kPlaces + 1;

  std::unique_ptr<ops::Backend> backend_;
  SystemClock clock_;
  WorkTotals totals_;
  bool records_kinds_ = false;
  uint64_t recordings_date_ = 0;
  RecordedKinds recorded_;              // of the last recorded step
  size_t alone_ = kEverything;          // the place whose operations are let through
  std::array<bool, kPlaces> called_{};  // places of the step that is recorded
};

}  // namespace headwater::bench
