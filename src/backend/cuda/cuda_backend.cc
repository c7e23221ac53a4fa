#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <bit>
#include <map>

#include "backend/cuda/append/append.h"
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/costs.h"
#include "backend/cuda/kv_pool.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/stopwatch.h"

namespace headwater::backend::cuda {
namespace {

class BlockOnDevice final : public ops::DeviceCopy {
 public:
  explicit BlockOnDevice(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  std::byte* data() const override { return buffer_.data(); }

 private:
  DeviceBuffer buffer_;
};

class CudaBackend final : public ops::Backend {
 public:
  CudaBackend(ops::BackendInfo info, const DeviceTraits& traits, bool is_invariant, Stream stream)
      : info_(std::move(info)), traits_(traits), stream_(std::move(stream)), attention_(traits, is_invariant) {}
  ~CudaBackend() override { static_cast<void>(stream_.wait()); }

  const ops::BackendInfo& info() const override { return info_; }
  attention::CostModel cost_model(const ops::KvShape& shape, uint32_t) const override {
    return attention_costs(shape, info_.invariant);
  }
  attention::DeviceShape device_shape(const ops::KvShape& shape, uint32_t q_heads) const override {
    return attention_.device_shape(shape, q_heads);
  }

  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override {
    return CudaKvPool::create(shape, traits_.is_hopper);
  }
  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view) override {
    HEADWATER_RETURN_IF_ERROR(ops::check_weight_type(view.dtype));
    return error(ErrorCode::kUnsupported, "the CUDA back end has attention and no products yet; use --backend cpu");
  }
  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns) override;
  Result<ops::StepBlock> create_step_block(const ops::StepLimits& limits) override;
  Status upload(const ops::Matrix& to, std::span<const float> from) override;
  Status download(std::span<float> to, const ops::Matrix& from) override;
  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads, uint32_t) override;

  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override;
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override;
  void rope_append(const ops::RopeAppendParams& params) override;
  void attend(const ops::AttentionParams& params) override;
  void merge(const ops::AttentionParams&) override {}  // attend() has merged
  Status finish() override;
  uint64_t take_kv_bytes_read() override;

  // Without prepare() there is no model, and without a model nobody calls these.
  void embed(const ops::EmbedParams&) override { check(false, "the CUDA back end has no embed()"); }
  void add_norm(const ops::AddNormParams&) override { check(false, "the CUDA back end has no add_norm()"); }
  void matmul(const ops::MatmulParams&) override { check(false, "the CUDA back end has no matmul()"); }
  void gate_mul(const ops::GateMulParams&) override { check(false, "the CUDA back end has no gate_mul()"); }
  void mix_experts(const ops::MixExpertsParams&) override { check(false, "the CUDA back end has no mix_experts()"); }
  void cap_logits(const ops::CapLogitsParams&) override { check(false, "the CUDA back end has no cap_logits()"); }
  void gather_rows(const ops::GatherRowsParams&) override { check(false, "the CUDA back end has no gather_rows()"); }
  void sample(const ops::SampleParams&) override { check(false, "the CUDA back end has no sample()"); }
  Result<std::span<const ops::Sampled>> collect() override {
    return error(ErrorCode::kUnsupported, "the CUDA back end does not sample yet");
  }

  Result<std::unique_ptr<ops::Stopwatch>> create_stopwatch(std::function<void()> work, bool cold) override;
  Result<double> read_floor_us(uint64_t bytes, uint32_t piece_bytes) override;

 private:
  void keep(Status status) {  // the first failure of the step; finish() returns it
    if (failure_ && !status) failure_ = std::move(status);
  }

  ops::BackendInfo info_;
  DeviceTraits traits_;
  Stream stream_;
  Attention attention_;
  std::vector<DeviceBuffer> matrices_;
  Status failure_;
  DeviceBuffer read_memory_;
  std::map<std::pair<uint64_t, uint32_t>, double> read_floors_;
};

Result<ops::Matrix> CudaBackend::allocate(uint32_t rows, uint32_t columns) {
  HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::create(uint64_t{rows} * columns * sizeof(float)));
  matrices_.push_back(std::move(buffer));
  return ops::Matrix{matrices_.back().as<float>(), rows, columns, columns};
}

Result<ops::StepBlock> CudaBackend::create_step_block(const ops::StepLimits& limits) {
  const uint64_t bytes = ops::StepBlock::bytes_max(limits);
  HEADWATER_ASSIGN_OR_RETURN(Buffer host, create_pinned(bytes));
  HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer device, DeviceBuffer::create(bytes));
  return ops::StepBlock::create(limits, std::move(host), std::make_unique<BlockOnDevice>(std::move(device)));
}

Status CudaBackend::upload(const ops::Matrix& to, std::span<const float> from) {
  check(from.size() == uint64_t{to.rows} * to.columns, "upload: one value an element");
  const size_t row_bytes = to.columns * sizeof(float);
  HEADWATER_RETURN_IF_ERROR(checked(cudaMemcpy2DAsync(to.data, to.stride * sizeof(float), from.data(), row_bytes,
                                                      row_bytes, to.rows, cudaMemcpyHostToDevice, stream_.get()),
                                    "upload"));
  return stream_.wait();
}

Status CudaBackend::download(std::span<float> to, const ops::Matrix& from) {
  check(to.size() == uint64_t{from.rows} * from.columns, "download: one value an element");
  const size_t row_bytes = from.columns * sizeof(float);
  HEADWATER_RETURN_IF_ERROR(checked(cudaMemcpy2DAsync(to.data(), row_bytes, from.data, from.stride * sizeof(float),
                                                      row_bytes, from.rows, cudaMemcpyDeviceToHost, stream_.get()),
                                    "download"));
  return stream_.wait();
}

Status CudaBackend::reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                                    uint32_t) {
  HEADWATER_RETURN_IF_ERROR(stream_.wait());
  return attention_.reserve(limits, q_heads, shape.v_head_dim);
}

Result<ops::DeviceBatch> CudaBackend::begin_step(const ops::StepBlock& block) {
  if (block.device_copy() == nullptr) {
    return error(ErrorCode::kInvalidArgument, "a step block in ordinary memory; make it with create_step_block()");
  }
  failure_ = {};
  const std::span<const std::byte> bytes = block.bytes();
  std::byte* device = block.device_copy()->data();
  HEADWATER_RETURN_IF_ERROR(checked(
      cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_.get()), "upload of a step"));
  return block.batch_at(device);
}

void CudaBackend::copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) {
  check(from.size() == to.size(), "copy_pages: one target a source");
  for (size_t i = 0; i < from.size(); ++i)
    keep(static_cast<CudaKvPool&>(pool).copy_page(from[i], to[i], stream_.get()));
}

void CudaBackend::rope_append(const ops::RopeAppendParams& params) {
  const KvPages& pages = static_cast<const CudaKvPool&>(*params.pool).pages();
  check(params.rope.dims <= pages.head_dim && params.rope.dims % 2 == 0, "rotated dimensions are even and in the head");
  if (params.rope.scale != 1 || params.norm_span != ops::NormSpan::kHead) {
    return keep(
        error(ErrorCode::kUnsupported,
              "the CUDA back end rotates by cosines and sines as they are (their scale is {}) and norms each head "
              "alone; use --backend cpu",
              params.rope.scale));
  }
  AppendCall call{};
  call.q = params.q.data;
  call.k = params.k.data;
  call.v = params.v.data;
  call.q_stride = params.q.stride;
  call.k_stride = params.k.stride;
  call.v_stride = params.v.stride;
  call.positions = params.batch->positions.data();
  call.append_pages = params.batch->append_pages.data();
  call.append_slots = params.batch->append_slots.data();
  call.header = params.batch->plans[0].header;
  call.kv = pages.layer(params.layer);
  call.q_heads = params.q.columns / pages.head_dim;
  call.kv_heads = pages.kv_heads;
  call.head_dim = pages.head_dim;
  call.dims = params.rope.dims;
  call.is_adjacent = params.rope.style == ops::RopeStyle::kAdjacentPairs;
  call.q_norm = params.q_norm;
  call.k_norm = params.k_norm;
  call.norm_epsilon = params.norm_epsilon;
  std::copy_n(params.rope.inverse_frequencies, call.dims / 2, call.inverse_frequencies);
  keep(checked(launch_append(pages.element, call, std::max(params.batch->tokens, 1u), stream_.get()),
               "launch of append"));
}

void CudaBackend::attend(const ops::AttentionParams& params) {
  keep(attention_.attend({.batch = params.batch,
                          .pages = &static_cast<const CudaKvPool&>(*params.pool).pages(),
                          .layer = params.layer,
                          .q_heads = params.q_heads,
                          .q = params.q.data,
                          .q_stride = params.q.stride,
                          .out = params.out.data,
                          .out_stride = params.out.stride,
                          .is_wide = true,
                          .lse2 = params.lse2,
                          .variant = params.variant,
                          .plan = params.plan},
                         stream_.get()));
}

Status CudaBackend::finish() {
  const Status waited = stream_.wait();
  return failure_ ? waited : std::exchange(failure_, {});
}

uint64_t CudaBackend::take_kv_bytes_read() {
  check(stream_.wait().is_ok(), "work on the device");
  return attention_.take_kv_bytes_read();
}

Result<std::unique_ptr<ops::Stopwatch>> CudaBackend::create_stopwatch(std::function<void()> work, bool cold) {
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<ops::Stopwatch> watch, GraphStopwatch::create(stream_, work, cold));
  HEADWATER_RETURN_IF_ERROR(failure_);
  return watch;
}

Result<double> CudaBackend::read_floor_us(uint64_t bytes, uint32_t piece_bytes) {
  if (const auto known = read_floors_.find({bytes, piece_bytes}); known != read_floors_.end()) return known->second;
  const uint64_t memory_bytes = std::max(std::bit_ceil(bytes), uint64_t{4} << 30);
  if (read_memory_.size() < memory_bytes) {
    read_memory_ = {};
    HEADWATER_ASSIGN_OR_RETURN(read_memory_, DeviceBuffer::create(memory_bytes));
  }
  HEADWATER_ASSIGN_OR_RETURN(const double us, cuda::read_floor_us(stream_, read_memory_, bytes, piece_bytes));
  return read_floors_[{bytes, piece_bytes}] = us;
}

}  // namespace

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config) {
  if (!config.cpu_target.empty()) {
    return error(ErrorCode::kInvalidArgument, "the CUDA back end has no CPU target '{}'; leave the target empty",
                 config.cpu_target);
  }
  HEADWATER_ASSIGN_OR_RETURN(const DeviceTraits traits, device_traits());
  HEADWATER_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  ops::BackendInfo info{.name = "cuda",
                        .target = traits.target,
                        .workers = traits.multiprocessors,
                        .page_size_multiple = 16,
                        .invariant = config.invariant,
                        .device = traits.name};
  info.runs_models = false;
  if (!config.invariant) info.cut = attention::kNoCut;
  return std::unique_ptr<ops::Backend>(
      std::make_unique<CudaBackend>(std::move(info), traits, config.invariant, std::move(stream)));
}

}  // namespace headwater::backend::cuda
