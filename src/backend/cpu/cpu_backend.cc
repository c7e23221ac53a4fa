#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/calibrate.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/kv_pages.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/peaks.h"
#include "backend/cpu/processor.h"
#include "backend/cpu/products.h"
#include "backend/cpu/rowwise.h"
#include "backend/cpu/targets.h"
#include "backend/cpu/thread_pool.h"

namespace headwater::backend::cpu {
namespace {

class CpuBackend final : public ops::Backend {
 public:
  CpuBackend(Target target, std::unique_ptr<ThreadPool> pool)
      : target_(target),
        pool_(std::move(pool)),
        products_(step_kernels(target), *pool_),
        rowwise_(step_kernels(target), *pool_),
        experts_(products_, rowwise_),
        attention_(target, *pool_),
        info_{"cpu", to_string(target), pool_->size(),     kPageSizeMultiple,
              true,  processor_name(),  available_names(), kCostsVersion} {
    info_.copies_weights = true;
  }

  const ops::BackendInfo& info() const override { return info_; }
  attention::CostModel cost_model(const ops::KvShape& shape, uint32_t q_heads) const override {
    return attention_.cost_model(shape, q_heads);
  }

  Result<ops::Costs> measure_costs(double seconds) override {
    HEADWATER_ASSIGN_OR_RETURN(const AttentionCosts costs, cpu::measure_costs(target_, *pool_, seconds));
    return to_named(costs);
  }
  Status use_costs(const ops::Costs& named) override {
    HEADWATER_ASSIGN_OR_RETURN(const AttentionCosts costs, from_named(named));
    attention_.use_costs(costs);
    return {};
  }

  Result<ops::Peaks> measure_peaks(uint32_t group) override { return cpu::measure_peaks(target_, *pool_, group); }

  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override {
    return CpuKvPool::create(shape);
  }
  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view) override;
  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns) override;
  void release(const ops::Matrix& matrix) override {
    std::erase_if(matrices_, [&](const Buffer& memory) { return memory.as<float>().data() == matrix.data; });
  }
  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                         uint32_t vocabulary) override;
  Status reserve_experts(const ops::ExpertsShape& shape) override { return experts_.reserve(shape); }

  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override { return block.host_batch(); }
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override {
    static_cast<CpuKvPool&>(pool).copy_pages(from, to);
  }
  void embed(const ops::EmbedParams& params) override { rowwise_.embed(params); }
  void add_norm(const ops::AddNormParams& params) override { rowwise_.add_norm(params); }
  void matmul(const ops::MatmulParams& params) override { products_.run(params); }
  void rope_append(const ops::RopeAppendParams& params) override { attention_.rope_append(params); }
  void attend(const ops::AttentionParams& params) override { attention_.attend(params); }
  void merge(const ops::AttentionParams& params) override { attention_.merge(params); }
  void gate_mul(const ops::GateMulParams& params) override { rowwise_.gate_mul(params); }
  void mix_experts(const ops::MixExpertsParams& params) override { experts_.run(params); }
  void cap_logits(const ops::CapLogitsParams& params) override { rowwise_.cap_logits(params); }
  void gather_rows(const ops::GatherRowsParams& params) override { rowwise_.gather_rows(params); }
  void sample(const ops::SampleParams& params) override;
  Result<std::span<const ops::Sampled>> collect() override;
  Status finish() override { return {}; }

  uint64_t take_kv_bytes_read() override { return attention_.take_kv_bytes_read(); }

 private:
  const Target target_;
  std::unique_ptr<ThreadPool> pool_;
  WeightMemory weight_memory_;
  Products products_;
  Rowwise rowwise_;
  Experts experts_;
  Attention attention_;
  ops::BackendInfo info_;
  std::vector<Buffer> matrices_;
  uint32_t tokens_max_ = 0;
  uint32_t vocabulary_max_ = 0;
  uint64_t quantized_columns_max_ = 0;  // over the weights prepared so far
  uint64_t decoded_columns_max_ = 0;    // and over those without a kernel

  std::vector<ops::SampleScratch> sample_scratch_;  // one a worker
  std::vector<ops::Sampled> sampled_;               // [logits_max]
  uint32_t sampled_rows_ = 0;
};

Result<std::unique_ptr<ops::Weight>> CpuBackend::prepare(const ops::WeightView& view) {
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<PackedWeight> weight, PackedWeight::create(view, *pool_, weight_memory_));
  uint64_t* columns_max = weight->is_quantized()  ? &quantized_columns_max_
                          : !weight->has_kernel() ? &decoded_columns_max_
                                                  : nullptr;
  if (columns_max != nullptr) {
    *columns_max = std::max(*columns_max, weight->columns());
    HEADWATER_RETURN_IF_ERROR(products_.reserve(tokens_max_, quantized_columns_max_, decoded_columns_max_));
  }
  return std::unique_ptr<ops::Weight>(std::move(weight));
}

Result<ops::Matrix> CpuBackend::allocate(uint32_t rows, uint32_t columns) {
  HEADWATER_ASSIGN_OR_RETURN(Buffer memory, Buffer::create(uint64_t{rows} * columns * sizeof(float)));
  matrices_.push_back(std::move(memory));
  return ops::Matrix{matrices_.back().as<float>().data(), rows, columns, columns};
}

Status CpuBackend::reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                                   uint32_t vocabulary) {
  tokens_max_ = std::max(tokens_max_, limits.tokens_max);
  HEADWATER_RETURN_IF_ERROR(products_.reserve(tokens_max_, quantized_columns_max_, decoded_columns_max_));
  HEADWATER_RETURN_IF_ERROR(attention_.reserve(limits, shape, q_heads));
  sampled_.resize(std::max<size_t>(sampled_.size(), limits.logits_max));
  if (vocabulary <= vocabulary_max_) return {};
  vocabulary_max_ = vocabulary;
  sample_scratch_.clear();
  for (uint32_t worker = 0; worker < pool_->size(); ++worker) {
    HEADWATER_ASSIGN_OR_RETURN(ops::SampleScratch scratch, ops::SampleScratch::create(vocabulary));
    sample_scratch_.push_back(std::move(scratch));
  }
  return {};
}

void CpuBackend::sample(const ops::SampleParams& params) {
  check(params.rows.size() <= sampled_.size() && params.rows.size() <= params.logits.rows,
        "sample: more rows than logits, or than reserve_scratch() was told");
  sampled_rows_ = static_cast<uint32_t>(params.rows.size());
  pool_->run(sampled_rows_, [&](uint32_t row, uint32_t worker) {
    const std::span<const float> logits(params.logits.row(row), params.logits.columns);
    Result<ops::Sampled> sampled = ops::sample_row(logits, params.rows[row], sample_scratch_[worker]);
    sampled_[row] = sampled ? *sampled : ops::Sampled{.error = sampled.status().code()};
  });
}

Result<std::span<const ops::Sampled>> CpuBackend::collect() {
  return std::span<const ops::Sampled>(sampled_.data(), sampled_rows_);
}

}  // namespace

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config) {
  const char* forced = std::getenv("HEADWATER_CPU_TARGET");
  std::string_view name = config.cpu_target;
  if (name.empty() && forced != nullptr) name = forced;
  HEADWATER_ASSIGN_OR_RETURN(const Target target, choose_target(name));
  HEADWATER_ASSIGN_OR_RETURN(auto pool, ThreadPool::create(config.threads > 0 ? config.threads : cores_available()));
  return std::unique_ptr<ops::Backend>(std::make_unique<CpuBackend>(target, std::move(pool)));
}

}  // namespace headwater::backend::cpu
