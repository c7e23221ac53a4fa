#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <bit>
#include <map>

#include "backend/cuda/activations.h"
#include "backend/cuda/append/append.h"
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/costs.h"
#include "backend/cuda/claim.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/kv_pool.h"
#include "backend/cuda/peaks.h"
#include "backend/cuda/products/products.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/sampling/sampler.h"
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
  CudaBackend(ops::BackendInfo info, const DeviceTraits& traits, double memory_share, Stream stream, Products products)
      : info_(std::move(info)),
        traits_(traits),
        memory_share_(memory_share),
        stream_(std::move(stream)),
        attention_(traits, info_.invariant, claim_.is_held()),
        products_(std::move(products)) {}
  ~CudaBackend() override { static_cast<void>(stream_.wait()); }

  const ops::BackendInfo& info() const override { return info_; }
  attention::CostModel cost_model(const ops::KvShape& shape, uint32_t) const override {
    return attention_costs(shape, info_.invariant);
  }
  attention::DeviceShape device_shape(const ops::KvShape& shape, uint32_t q_heads) const override {
    return attention_.device_shape(shape, q_heads);
  }

  ops::PoolMemory pool_memory() const override;
  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override {
    return CudaKvPool::create(shape, traits_.is_hopper);
  }
  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view) override {
    ++scratch_moves_;
    return products_.prepare(view, stream_);
  }
  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns) override {
    return allocate(rows, columns, DType::kF32);
  }
  Result<ops::Matrix> allocate_operand(uint32_t rows, uint32_t columns) override {
    return allocate(rows, columns, products_.operand_type());
  }
  void release(const ops::Matrix& matrix) override {
    std::erase_if(matrices_, [&](const DeviceBuffer& memory) { return memory.as<float>() == matrix.data; });
  }
  Result<const float*> place(std::span<const float> values) override;
  Result<ops::StepBlock> create_step_block(const ops::StepLimits& limits) override;
  Result<ops::StepBlock> create_twin(const ops::StepBlock& block) override;
  Status upload(const ops::Matrix& to, std::span<const float> from) override;
  Status download(std::span<float> to, const ops::Matrix& from) override;
  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                         uint32_t vocabulary) override;

  Status reserve_experts(const ops::ExpertsShape& shape) override {
    if (!products_.has_few() && products_.operand_type() != DType::kF32) {
      return error(ErrorCode::kUnsupported,
                   "experts take {} bytes of shared memory a block, more than {} has: use --backend cpu",
                   kFewSharedBytes, info_.device);
    }
    HEADWATER_RETURN_IF_ERROR(check_collected("scratch"));
    ++scratch_moves_;
    HEADWATER_RETURN_IF_ERROR(stream_.wait());
    return experts_.reserve(shape);
  }

  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override;
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override;
  void rope_append(const ops::RopeAppendParams& params) override;
  void attend(const ops::AttentionParams& params) override;
  void merge(const ops::AttentionParams&) override {}  // attend() has merged
  Status finish() override;
  uint64_t take_kv_bytes_read() override;

  Result<std::unique_ptr<ops::Recording>> record(const std::function<void()>& work) override;
  void embed(const ops::EmbedParams& params) override;
  void add_norm(const ops::AddNormParams& params) override;
  void matmul(const ops::MatmulParams& params) override { keep(products_.run(params, stream_.get())); }
  void gate_mul(const ops::GateMulParams& params) override;
  void gated_matmul(const ops::GatedMatmulParams& params) override {
    const Result<bool> done = products_.run_gated(params, stream_.get());
    keep(done.status());
    if (done && !*done) Backend::gated_matmul(params);
  }
  void mix_experts(const ops::MixExpertsParams& params) override {
    keep(experts_.run(params, products_, stream_.get()));
  }
  void cap_logits(const ops::CapLogitsParams& params) override;
  void gather_rows(const ops::GatherRowsParams& params) override;
  void sample(const ops::SampleParams& params) override {
    keep(sampler_.sample(params.logits, params.rows, stream_.get()));
  }
  Result<std::span<const ops::Sampled>> collect() override;

  Result<std::unique_ptr<ops::Stopwatch>> create_stopwatch(std::function<void()> work, bool cold) override;
  Result<double> read_floor_us(uint64_t bytes, uint32_t piece_bytes) override;
  Result<ops::Peaks> measure_peaks(uint32_t) override { return cuda::measure_peaks(stream_); }

 private:
  Result<ops::Matrix> allocate(uint32_t rows, uint32_t columns, DType dtype);
  Status check_collected(const char* what) const;  // which another engine asks for
  void keep(Status status) {  // the first failure of what is enqueued; collect(), finish() or begin_step() returns it
    if (failure_ && !status) failure_ = std::move(status);
  }
  void enqueued(cudaError_t result, const char* what) { keep(checked(result, what)); }

  ops::BackendInfo info_;
  DeviceTraits traits_;
  double memory_share_;
  Stream stream_;
  DeviceClaim claim_ = DeviceClaim::try_take();
  Attention attention_;
  Products products_;
  Experts experts_;
  Sampler sampler_;
  Arena vectors_;
  std::vector<DeviceBuffer> matrices_;
  DeviceBuffer attended_;  // room for outputs of attention that its kernels do not write as they are wanted
  Status failure_;
  uint64_t scratch_moves_ = 0;                    // RecordedWork
  const ops::DeviceCopy* newest_copy_ = nullptr;  // of the last step that was begun
  DeviceBuffer read_memory_;
  std::map<std::pair<uint64_t, uint32_t>, double> read_floors_;
};

// Replays on the stream of its back end, which it does not outlive.
class RecordedWork final : public ops::Recording {
 public:
  // scratch_moves: of the back end; what was recorded counts while it stays as it is.
  RecordedWork(Graph graph, const Stream& stream, const uint64_t& scratch_moves, Status& failure)
      : graph_(std::move(graph)),
        stream_(stream),
        scratch_moves_(scratch_moves),
        recorded_at_(scratch_moves),
        failure_(failure) {}
  bool replay() override {
    if (scratch_moves_ != recorded_at_) return false;
    Status launched = graph_.launch(stream_);
    if (failure_ && !launched) failure_ = std::move(launched);
    return true;
  }

 private:
  Graph graph_;
  const Stream& stream_;
  const uint64_t& scratch_moves_;
  const uint64_t recorded_at_;
  Status& failure_;
};

ops::PoolMemory CudaBackend::pool_memory() const {
  const DeviceMemory memory = device_memory();
  const auto share = static_cast<uint64_t>(memory_share_ * static_cast<double>(memory.total));
  const uint64_t used = memory.total - memory.free;
  return {memory.free, share > used ? share - used : 0, "what --gpu-memory-utilization leaves beside the weights"};
}

Result<ops::Matrix> CudaBackend::allocate(uint32_t rows, uint32_t columns, DType dtype) {
  HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::create(rows * row_bytes(dtype, columns)));
  matrices_.push_back(std::move(buffer));
  return ops::Matrix{matrices_.back().as<float>(), rows, columns, columns, dtype};
}

Status CudaBackend::check_collected(const char* what) const {
  if (sampler_.waiting() == 0) return {};
  return error(
      ErrorCode::kInvalidArgument,
      "{} while {} steps of another engine are not collected; set run_ahead to false for engines that take turns", what,
      sampler_.waiting());
}

Result<const float*> CudaBackend::place(std::span<const float> values) {
  HEADWATER_ASSIGN_OR_RETURN(std::byte * placed, vectors_.take(values.size_bytes()));
  HEADWATER_RETURN_IF_ERROR(checked(
      cudaMemcpyAsync(placed, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_.get()), "upload"));
  HEADWATER_RETURN_IF_ERROR(stream_.wait());
  return reinterpret_cast<const float*>(placed);
}

Result<ops::StepBlock> CudaBackend::create_step_block(const ops::StepLimits& limits) {
  const uint64_t bytes = ops::StepBlock::bytes_max(limits);
  HEADWATER_ASSIGN_OR_RETURN(Buffer host, create_pinned(bytes));
  HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer device, DeviceBuffer::create(bytes));
  return ops::StepBlock::create(limits, std::move(host), std::make_shared<BlockOnDevice>(std::move(device)));
}

Result<ops::StepBlock> CudaBackend::create_twin(const ops::StepBlock& block) {
  HEADWATER_ASSIGN_OR_RETURN(Buffer host, create_pinned(ops::StepBlock::bytes_max(block.limits())));
  return ops::StepBlock::create(block.limits(), std::move(host), block.device_copy());
}

Status CudaBackend::upload(const ops::Matrix& to, std::span<const float> from) {
  check(from.size() == uint64_t{to.rows} * to.columns && to.dtype == DType::kF32, "upload: one float an element");
  const size_t row_bytes = to.columns * sizeof(float);
  HEADWATER_RETURN_IF_ERROR(checked(cudaMemcpy2DAsync(to.data, to.stride * sizeof(float), from.data(), row_bytes,
                                                      row_bytes, to.rows, cudaMemcpyHostToDevice, stream_.get()),
                                    "upload"));
  return stream_.wait();
}

Status CudaBackend::download(std::span<float> to, const ops::Matrix& from) {
  check(to.size() == uint64_t{from.rows} * from.columns && from.dtype == DType::kF32, "download: one float an element");
  const size_t row_bytes = from.columns * sizeof(float);
  HEADWATER_RETURN_IF_ERROR(checked(cudaMemcpy2DAsync(to.data(), row_bytes, from.data, from.stride * sizeof(float),
                                                      row_bytes, from.rows, cudaMemcpyDeviceToHost, stream_.get()),
                                    "download"));
  return stream_.wait();
}

Status CudaBackend::reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads,
                                    uint32_t vocabulary) {
  HEADWATER_RETURN_IF_ERROR(check_collected("scratch"));
  ++scratch_moves_;
  HEADWATER_RETURN_IF_ERROR(stream_.wait());
  HEADWATER_RETURN_IF_ERROR(products_.reserve(limits.tokens_max));
  if (shape.dtype == DType::kF16) {
    const uint64_t columns = uint64_t{q_heads} * shape.v_head_dim;
    HEADWATER_RETURN_IF_ERROR(attended_.grow(limits.tokens_max * columns * sizeof(float)));
  }
  HEADWATER_RETURN_IF_ERROR(sampler_.reserve(limits.logits_max, vocabulary));
  return attention_.reserve(limits, q_heads, shape.v_head_dim);
}

Result<std::unique_ptr<ops::Recording>> CudaBackend::record(const std::function<void()>& work) {
  Status before = std::exchange(failure_, {});  // of what was enqueued: whoever collects that is to hear of it
  Result<Graph> graph = Graph::record(stream_, work);
  HEADWATER_RETURN_IF_ERROR(std::exchange(failure_, std::move(before)));
  HEADWATER_RETURN_IF_ERROR(graph.status());
  return std::unique_ptr<ops::Recording>(
      std::make_unique<RecordedWork>(std::move(graph).value(), stream_, scratch_moves_, failure_));
}

void CudaBackend::embed(const ops::EmbedParams& p) {
  const auto& table = static_cast<const CudaWeight&>(*p.table);
  enqueued(launch_embed({table.dense, table.columns_padded, table.is_short}, static_cast<uint32_t>(table.rows()),
                        {p.token_ids.data(), sampler_.tokens(), sampler_.rows_max()}, p.scale, rows_of(p.out),
                        extent_of(p.out), stream_.get()),
           "embed");
}

void CudaBackend::add_norm(const ops::AddNormParams& p) {
  if (p.residual.columns > kNormColumnsMax) {
    return keep(error(ErrorCode::kUnsupported, "a norm of {} columns; the CUDA back end takes {}: use --backend cpu",
                      p.residual.columns, kNormColumnsMax));
  }
  enqueued(launch_add_norm({rows_of(p.residual), rows_of(p.delta), rows_of(p.out), p.weight, p.delta_weight,
                            extent_of(p.residual), p.epsilon, p.delta_scale},
                           stream_.get()),
           "add_norm");
}

void CudaBackend::gate_mul(const ops::GateMulParams& p) {
  check(p.gate.dtype == p.up.dtype, "gate and up have one type");
  enqueued(
      launch_gate_mul({rows_of(p.gate), rows_of(p.up), rows_of(p.out), extent_of(p.out), p.out.columns, p.activation},
                      stream_.get()),
      "gate_mul");
}

void CudaBackend::cap_logits(const ops::CapLogitsParams& p) {
  enqueued(launch_cap_logits(rows_of(p.logits), extent_of(p.logits), p.scale, p.softcap, stream_.get()), "cap_logits");
}

void CudaBackend::gather_rows(const ops::GatherRowsParams& p) {
  enqueued(launch_gather_rows(rows_of(p.in), p.in.rows, p.rows.data(), rows_of(p.out), extent_of(p.out), stream_.get()),
           "gather_rows");
}

Result<ops::DeviceBatch> CudaBackend::begin_step(const ops::StepBlock& block) {
  if (block.device_copy() == nullptr) {
    return error(ErrorCode::kInvalidArgument, "a step block in ordinary memory; make it with create_step_block()");
  }
  if (block.device_copy().get() != newest_copy_) HEADWATER_RETURN_IF_ERROR(check_collected("a step"));
  newest_copy_ = block.device_copy().get();
  HEADWATER_RETURN_IF_ERROR(std::exchange(failure_, {}));  // of a step that nobody has collected
  const std::span<const std::byte> bytes = block.bytes();
  std::byte* device = block.device_copy()->data();
  // By a copy engine, behind which no kernel begins early: some read the block before they wait for kernels ahead.
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
  call.is_row_norm = params.norm_span == ops::NormSpan::kRow && params.q_norm != nullptr;
  call.rope_scale = params.rope.scale;
  std::copy_n(params.rope.inverse_frequencies, call.dims / 2, call.inverse_frequencies);
  keep(checked(launch_append(pages.element, call, std::max(params.batch->tokens, 1u), stream_.get()),
               "launch of append"));
}

void CudaBackend::attend(const ops::AttentionParams& params) {
  const KvPages& pages = static_cast<const CudaKvPool&>(*params.pool).pages();
  ops::Matrix out = params.out;
  const bool converts = out.dtype != DType::kF32 && pages.element == KvElement::kF16;  // which would write F16
  if (converts) {
    check(uint64_t{out.rows} * out.columns * sizeof(float) <= attended_.size(), "room for F16 attention");
    out = {attended_.as<float>(), out.rows, out.columns, out.columns};
  }
  keep(attention_.attend({.batch = params.batch,
                          .pages = &pages,
                          .layer = params.layer,
                          .q_heads = params.q_heads,
                          .q = params.q.data,
                          .q_stride = params.q.stride,
                          .out = out.data,
                          .out_stride = out.stride,
                          .q_is_wide = true,
                          .out_is_wide = out.dtype == DType::kF32,
                          .lse2 = params.lse2,
                          .variant = params.variant,
                          .plan = params.plan},
                         stream_.get()));
  if (converts)
    enqueued(launch_convert(rows_of(out), out.columns, rows_of(params.out), extent_of(out), stream_.get()),
             "attention's output");
}

Result<std::span<const ops::Sampled>> CudaBackend::collect() {
  if (!failure_) return finish();  // the step's block is written again
  return sampler_.collect();
}

Status CudaBackend::finish() {
  const Status waited = stream_.wait();
  sampler_.forget();
  return failure_ ? waited : std::exchange(failure_, {});
}

uint64_t CudaBackend::take_kv_bytes_read() {
  check(stream_.wait().is_ok(), "work on the device");
  return attention_.take_kv_bytes_read();
}

Result<std::unique_ptr<ops::Stopwatch>> CudaBackend::create_stopwatch(std::function<void()> work, bool cold) {
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<ops::Stopwatch> watch, GraphStopwatch::create(stream_, work, cold));
  HEADWATER_RETURN_IF_ERROR(std::exchange(failure_, {}));
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

const bool kIsBuilt = true;

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config) {
  if (!config.cpu_target.empty()) {
    return error(ErrorCode::kInvalidArgument, "the CUDA back end has no CPU target '{}'; leave the target empty",
                 config.cpu_target);
  }
  HEADWATER_ASSIGN_OR_RETURN(const DeviceTraits traits, device_traits());
  HEADWATER_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  HEADWATER_ASSIGN_OR_RETURN(Products products, Products::create(config.invariant));
  ops::BackendInfo info{.name = "cuda",
                        .target = traits.target,
                        .workers = traits.multiprocessors,
                        .page_size_multiple = 16,
                        .invariant = config.invariant,
                        .device = traits.name};
  info.records = true;
  info.runs_ahead = true;
  info.copies_weights = true;
  if (!config.invariant) info.cut = attention::kNoCut;
  return std::unique_ptr<ops::Backend>(std::make_unique<CudaBackend>(std::move(info), traits, config.memory_share,
                                                                     std::move(stream), std::move(products)));
}

}  // namespace headwater::backend::cuda
