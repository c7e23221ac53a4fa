#include "backend/reference/reference_backend.h"

#include "backend/reference/attention.h"
#include "backend/reference/experts.h"
#include "backend/reference/operations.h"
#include "backend/reference/pool.h"

namespace headwater::backend::reference {
namespace {

class ReferenceBackend final : public ops::Backend {
 public:
  explicit ReferenceBackend(uint32_t threads) : info_{"reference", "plain", threads, 1, true}, matmul_(threads) {}

  const ops::BackendInfo& info() const override { return info_; }
  attention::CostModel cost_model(const ops::KvShape&, uint32_t) const override { return {}; }

  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override {
    HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<ops::KvPool> pool, Pool::create(shape));
    return pool;
  }

  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view) override {
    HEADWATER_RETURN_IF_ERROR(ops::check_weight_type(view.dtype));
    if (view.columns % block_elements(view.dtype) != 0) {
      return error(ErrorCode::kInvalidArgument, "a {} weight of {} columns; rows must be whole blocks of {}",
                   to_string(view.dtype), view.columns, block_elements(view.dtype));
    }
    return std::unique_ptr<ops::Weight>(std::make_unique<ViewWeight>(view));
  }

  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns) override {
    HEADWATER_ASSIGN_OR_RETURN(Buffer buffer, Buffer::create(uint64_t{rows} * columns * sizeof(float)));
    const ops::Matrix matrix{buffer.as<float>().data(), rows, columns, columns};
    buffers_.push_back(std::move(buffer));
    return matrix;
  }
  void release(const ops::Matrix& matrix) override {
    std::erase_if(buffers_, [&](const Buffer& buffer) { return buffer.as<float>().data() == matrix.data; });
  }

  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape&, uint32_t, uint32_t vocabulary) override {
    HEADWATER_ASSIGN_OR_RETURN(scratch_, ops::SampleScratch::create(vocabulary));
    sampled_.reserve(limits.logits_max);
    return {};
  }

  Status reserve_experts(const ops::ExpertsShape&) override { return {}; }

  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override { return block.host_batch(); }

  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override {
    check(from.size() == to.size(), "copy_pages: one target a source");
    for (size_t i = 0; i < from.size(); ++i) static_cast<Pool&>(pool).copy_page(from[i], to[i]);
  }

  void embed(const ops::EmbedParams& params) override { reference::embed(params); }
  void add_norm(const ops::AddNormParams& params) override { reference::add_norm(params); }
  void matmul(const ops::MatmulParams& params) override { matmul_.run(params); }
  void rope_append(const ops::RopeAppendParams& params) override { reference::rope_append(params); }
  void attend(const ops::AttentionParams& params) override { attention_.attend(params); }
  void merge(const ops::AttentionParams& params) override { attention_.merge(params); }
  void gate_mul(const ops::GateMulParams& params) override { reference::gate_mul(params); }
  void mix_experts(const ops::MixExpertsParams& params) override { experts_.run(params); }
  void cap_logits(const ops::CapLogitsParams& params) override { reference::cap_logits(params); }
  void gather_rows(const ops::GatherRowsParams& params) override { reference::gather_rows(params); }

  void sample(const ops::SampleParams& params) override {
    check(params.rows.size() == params.logits.rows, "sample: one row of settings a row of logits");
    sampled_.clear();
    for (uint32_t i = 0; i < params.logits.rows; ++i) {
      const std::span<const float> logits(params.logits.row(i), params.logits.columns);
      Result<ops::Sampled> sampled = ops::sample_row(logits, params.rows[i], scratch_);
      sampled_.push_back(sampled ? *sampled : ops::Sampled{.error = sampled.status().code()});
    }
  }

  Result<std::span<const ops::Sampled>> collect() override { return std::span<const ops::Sampled>(sampled_); }

  Status finish() override { return {}; }

  uint64_t take_kv_bytes_read() override { return attention_.take_kv_bytes_read(); }

 private:
  ops::BackendInfo info_;
  Matmul matmul_;
  Experts experts_{matmul_};
  Attention attention_;
  std::vector<Buffer> buffers_;
  ops::SampleScratch scratch_;
  std::vector<ops::Sampled> sampled_;
};

}  // namespace

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config) {
  if (!config.cpu_target.empty()) {
    return error(ErrorCode::kInvalidArgument, "the reference back end has no CPU target '{}'; leave the target empty",
                 config.cpu_target);
  }
  const uint32_t threads = config.threads == 0 ? cores_available() : config.threads;
  return std::unique_ptr<ops::Backend>(std::make_unique<ReferenceBackend>(threads));
}

}  // namespace headwater::backend::reference
