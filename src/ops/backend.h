// The Backend interface: the device work of a step, as the decoder composes it.
//
// Drawn for a device from the start. Operations are enqueued in order on one stream; only collect() and finish() wait.
// Nothing allocates between begin_step() and collect(). The first step of a size is the exception: it may
// choose between ways to compute, which waits, and sample() takes room for more listed tokens than ever before. Pointers inside Matrix, DeviceBatch and the
// parameter structs are device pointers (host pointers on the reference and cpu back ends).
// One thread drives a Backend at a time; the back end spreads the work over its own threads.
//
// Activations are row-major, [tokens, columns] with a row stride in elements; f32, but for those of allocate_operand().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/plan.h"
#include "core/core.h"
#include "ops/activation.h"
#include "ops/kv_pool.h"
#include "ops/sampling.h"
#include "ops/step_block.h"

namespace headwater::ops {

struct Matrix {
  float* data = nullptr;  // of another dtype: the address of its elements
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint64_t stride = 0;  // elements from row to row, >= columns
  DType dtype = DType::kF32;

  float* row(uint64_t index) const { return data + index * stride; }  // of f32
  Matrix first_rows(uint32_t count) const { return {data, count, columns, stride, dtype}; }
  Matrix slice(uint32_t column, uint32_t count) const {  // of columns
    auto* bytes = reinterpret_cast<std::byte*>(data) + row_bytes(dtype, column);
    return {reinterpret_cast<float*>(bytes), rows, count, stride, dtype};
  }
};

// Weights as the model file holds them: `rows` output features, each a row of `columns` inputs in `dtype` (blocks along
// the row). Host memory, usually the mapped file; must outlive every Weight prepared from it unless the back end
// copies.
struct WeightView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t bytes() const { return rows * row_bytes(dtype, columns); }
};

// kUnsupported for what no weight is stored in: the elements of 8-bit KV pages.
Status check_weight_type(DType dtype);

// A weight as the back end wants it (repacked, uploaded, or just the view). Host back ends keep its values; the cuda back end
// rounds what it has no coding for to BF16.
class Weight {
 public:
  Weight(uint64_t rows, uint64_t columns, DType dtype) : rows_(rows), columns_(columns), dtype_(dtype) {}
  virtual ~Weight() = default;
  uint64_t rows() const { return rows_; }
  uint64_t columns() const { return columns_; }
  DType dtype() const { return dtype_; }

 private:
  uint64_t rows_;
  uint64_t columns_;
  DType dtype_;
};

struct EmbedParams {
  std::span<const TokenId> token_ids;  // [T], inside the table; or pending where BackendInfo::runs_ahead
  const Weight* table;                 // [vocabulary, columns]
  Matrix out;                          // [T, columns]
  float scale = 1.0f;                  // out = scale * row of the table (Gemma: sqrt(columns); Granite)
};

// With norm(x, w) = x / sqrt(mean(x^2) + epsilon) * w:
//   residual += delta_scale * (delta_weight ? norm(delta, delta_weight) : delta)     (delta may have no data)
//   out = weight ? norm(residual, weight) : residual
// delta_weight: a norm behind a block (Gemma 2, OLMo 2); no weight: none before the next one (OLMo 2).
struct AddNormParams {
  Matrix residual;      // [T, columns], updated
  Matrix delta;         // [T, columns] or data == nullptr
  const float* weight;  // [columns] or null
  float epsilon;
  Matrix out;                           // [T, columns]; may not alias residual
  const float* delta_weight = nullptr;  // [columns] or null
  float delta_scale = 1.0f;             // Granite's residual multiplier
};

// out = x * transpose(weight) (+ bias). Several weights may read the same x: it is quantised once for all of them.
// With BackendInfo::invariant one summation order along the columns for every number of rows: the bits of a row do not depend on
// its neighbours.
struct Product {
  const Weight* weight;         // [n, k]
  Matrix out;                   // [T, n]
  const float* bias = nullptr;  // [n] or null
};
struct MatmulParams {
  Matrix x;  // [T, k]
  std::span<const Product> products;
};

enum class RopeStyle : uint8_t {
  kAdjacentPairs,
  kHalves
};  // llama GGUF: adjacent pairs; neox: element i with i + dim / 2
struct Rope {
  RopeStyle style = RopeStyle::kAdjacentPairs;
  uint32_t dims = 0;  // rotated dimensions of a head, even, <= head_dim; 0: none is
  const float*
      inverse_frequencies;  // [dims / 2]; angle = position * inverse_frequencies[i]. Host memory on every back end
  float scale = 1.0f;       // of cosine and sine, so of the rotated dimensions (yarn, longrope)
};

enum class NormSpan : uint8_t { kHead, kRow };

// Rotates q and k by their positions and writes k and v of each token into its page slot, in one pass. A token whose append
// page is kNoPage (a padded row) is not written. With norms, each head x of q and k becomes
// x / sqrt(mean(x^2) + norm_epsilon) * norm before it is rotated (Qwen3, Gemma 3); with NormSpan::kRow the mean is taken
// over all heads of the token (OLMo 2).
struct RopeAppendParams {
  Matrix q;  // [T, q_heads * head_dim], changed in place; may be a slice of a fused projection (stride > columns)
  Matrix k;  // [T, kv_heads * head_dim]; left as it was
  Matrix v;  // [T, kv_heads * v_head_dim]
  const DeviceBatch* batch;
  Rope rope;
  KvPool* pool;
  uint32_t layer;
  const float* q_norm = nullptr;  // [head_dim], the same for all heads; kRow: [q_heads * head_dim]; or null
  const float* k_norm = nullptr;
  float norm_epsilon = 1e-6f;
  NormSpan norm_span = NormSpan::kHead;
};

// The fields of attention that differ between models (not between steps). The window is in the plan: a model whose layers
// have different windows gets one plan for each (DeviceBatch::plans).
struct AttentionVariant {
  float scale = 1.0f;    // scores = scale * q.k
  float softcap = 0.0f;  // > 0: scores = softcap * tanh(scores / softcap)
  const float* sinks =
      nullptr;  // [q_heads] learned logits (natural units, not scaled) or null; one per row in the denominator
};

struct AttentionParams {
  Matrix q;                  // [T, q_heads * head_dim] in batch order
  Matrix out;                // [T, q_heads * v_head_dim] in batch order
  float* lse2 = nullptr;     // [T, q_heads] merged lse2 in batch order, or null
  const DeviceBatch* batch;  // plan, page ids
  const KvPool* pool;
  uint32_t layer;
  uint32_t q_heads;  // a multiple of the pool's kv_heads; query head h reads KV head h / (q_heads / kv_heads)
  AttentionVariant variant;
  uint32_t plan = 0;  // which of the step's plans: ModelShape::windows[plan] is its window
};

struct GateMulParams {  // out = activation(gate, up)
  Matrix gate;          // [T, n]
  Matrix up;            // [T, n]
  Matrix out;           // [T, n]; may alias gate
  Activation activation = Activation::kSilu;
};

// out = activation(gate, up) of two products that read the same x. Their outputs are room, and hold anything afterwards.
struct GatedMatmulParams {
  Matrix x;          // [T, k]
  Product gate, up;  // [n, k] each
  Matrix out;        // [T, n]; may alias gate.out
  Activation activation = Activation::kSilu;
};

// A feed-forward block of experts: out[t] = sum over the chosen experts e of p(t, e) * down_e(activation(gate_e x, up_e x)),
// in descending order of router logits, the lower id first among equals. Products are grouped by expert. The bits of a
// token depend on nothing but the token.
// p: softmax over all router logits; renormalised over the chosen ones if asked, which is the softmax over the chosen
// logits alone (Mixtral, Qwen3-MoE; gpt-oss).
struct Expert {
  const Weight* gate;                // [n, k]
  const Weight* up;                  // [n, k]
  const Weight* down;                // [k, n]
  const float* gate_bias = nullptr;  // [n] or null
  const float* up_bias = nullptr;    // [n] or null
  const float* down_bias = nullptr;  // [k] or null
};
struct MixExpertsParams {
  Matrix x;                         // [T, k]
  Matrix router_logits;             // [T, experts]
  std::span<const Expert> experts;  // of one shape
  uint32_t experts_used;            // per token, 1 to experts
  bool renormalize = true;
  Activation activation = Activation::kSilu;
  Matrix out;  // [T, k]; may not alias x
};

struct ExpertsShape {       // of the largest mix_experts()
  uint32_t tokens_max = 0;  // T
  uint32_t columns = 0;     // k
  uint32_t hidden = 0;      // n
  uint32_t experts = 0;     // of one layer
  uint32_t experts_used = 0;
};

// logits = cap(scale * logits); cap(x) = softcap * tanh(x / softcap), the identity for softcap 0.
struct CapLogitsParams {
  Matrix logits;  // [L, vocabulary], changed in place
  float scale = 1.0f;
  float softcap = 0.0f;
};

struct GatherRowsParams {
  Matrix in;
  std::span<const uint32_t> rows;  // [L]
  Matrix out;                      // [L, columns]
};

struct SampleParams {
  Matrix logits;                    // [L, vocabulary]
  std::span<const SampleRow> rows;  // [L]; host memory, read before sample() returns
};

struct BackendInfo {
  std::string name;                       // "reference", "cpu"
  std::string target;                     // "scalar", "avx2", "avx512", "avx512_bf16", ...
  uint32_t workers;                       // threads or SMs
  uint32_t page_size_multiple;            // page sizes it takes: multiples of this
  bool invariant;                         // sharing-invariant bits; plans for it are made with PlanSettings::invariant
  std::string device = {};                // the hardware, as far as measured costs depend on it
  std::vector<std::string> targets = {};  // that the device can run, the simplest first
  uint32_t costs_version = 0;             // of the kernels and of the cost names; 0: the back end measures no costs
  uint32_t cut = 256;                     // PlanSettings::cut that suits it
  bool copies_weights = false;            // prepared weights do not read their views any more
  bool records = false;                   // record() saves the host the work of enqueueing a step
  bool runs_ahead = false;  // a step of decoding may be begun before the one before was collected: its tokens may be
                            // pending_token()s, which embed() looks up where the sample() before left them
};

// Measured costs of attention by name, in nanoseconds. The names are the back end's own; they are valid for the
// device, target, workers and costs_version of the info() they were measured with.
using Costs = std::map<std::string, double>;

// Bytes for KV pages.
struct PoolMemory {
  uint64_t free = 0;     // 0: unknown
  uint64_t usual = 0;    // what a pool takes unless it is told
  std::string_view why;  // "a quarter of what is free": what `usual` is, for messages
};
inline constexpr double kHostPoolShare = 0.25;  // of free memory

struct BackendConfig {
  uint32_t threads = 0;    // 0: the cores this process may run on
  std::string cpu_target;  // "": the best the processor has; or scalar, avx2, avx512, avx512_bf16, avx512_amx
  bool invariant = false;  // cuda: the same bits whatever is shared and whoever is in the batch, at a cost. Host back
                           // ends always are
  double memory_share = 0.9;  // cuda: of the device's memory for weights, activations and KV pages together
};

// What the device reached in a short measurement, all workers together. Zeros: not measured.
struct Peaks {
  double multiply_adds_per_s = 0;         // of attention's dot products, full row tiles, data at hand
  double multiply_adds_flat_per_s = 0;    // the same with the rows of one flat decode item
  double weights_per_s = 0;               // softmax weights: 2^x, sum, store
  double byte_multiply_adds_per_s = 0;    // 8 bits, by the instruction of large quantised products
  double tensor_multiply_adds_per_s = 0;  // of large products of BF16, where a device has units for them
  double cache_bytes_per_s = 0;           // reading what fits a worker's private cache
  double memory_bytes_per_s = 0;          // reading far more than fits
};

// Times `work` as the engine would run it: on a device its recorded graph, caches emptied before each run if asked.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual Result<double> sample_us() = 0;  // one sample of the time of one run
};

// Operations to be enqueued again, at once. Not after the back end that recorded them, nor after what they read and write.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual bool
  replay() = 0;  // false, and nothing is enqueued: scratch has moved since (reserve_*(), prepare()); record again
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // shape.pages: the whole pool, which says from how far away a step reads.
  virtual attention::CostModel cost_model(const KvShape& shape, uint32_t q_heads) const = 0;
  // Measures for about `seconds`, never during a step. kUnsupported where costs_version is 0.
  virtual Result<Costs> measure_costs(double /*seconds*/) {
    return error(ErrorCode::kUnsupported, "the {} back end has no costs to measure", info().name);
  }
  // Replaces the built-in values of later cost_model() calls. kCorrupt names the value that cannot be; then nothing
  // changes.
  virtual Status use_costs(const Costs& /*costs*/) {
    return error(ErrorCode::kUnsupported, "the {} back end takes no measured costs", info().name);
  }

  // What planners for this back end are made with.
  virtual attention::DeviceShape device_shape(const KvShape& shape, uint32_t q_heads) const {
    return {info().workers, shape.kv_heads, q_heads / shape.kv_heads, 64, shape.bytes_token_layer()};
  }

  // Set-up.
  virtual PoolMemory pool_memory() const;  // host back ends: of the machine
  virtual Result<std::unique_ptr<KvPool>> create_kv_pool(const KvShape& shape) = 0;
  virtual Result<std::unique_ptr<Weight>> prepare(const WeightView& view) = 0;
  virtual Result<Matrix> allocate(uint32_t rows, uint32_t columns) = 0;  // freed with the back end; stride = columns
  // For what products read or what a gate_mul() takes: in the type that suits the products of the weights that were prepared,
  // mostly BF16 on a GPU.
  virtual Result<Matrix> allocate_operand(uint32_t rows, uint32_t columns) { return allocate(rows, columns); }
  // Frees what one of these gave, when no step that uses it is on its way.
  virtual void release(const Matrix& matrix) = 0;
  // Where operations read a vector (a norm's weight, a bias): the span itself on host back ends, which must outlive its use; a
  // copy elsewhere, freed with the back end.
  virtual Result<const float*> place(std::span<const float> values) { return values.data(); }
  virtual Result<StepBlock> create_step_block(const StepLimits& limits) { return StepBlock::create(limits); }
  // One more host block for steps in turn with `block`. They share the copy on the device, whose addresses recordings
  // hold.
  virtual Result<StepBlock> create_twin(const StepBlock& block) { return StepBlock::create(block.limits()); }
  // Between host memory, rows packed, and a matrix; both wait for what is enqueued. Not during a step.
  virtual Status upload(const Matrix& to, std::span<const float> from);
  virtual Status download(std::span<float> to, const Matrix& from);
  // Scratch for steps up to these limits; called once before the first step and again when limits grow. kInvalidArgument, and
  // nothing changes, while a sample() is not collected: its tokens lie in scratch.
  virtual Status reserve_scratch(const StepLimits& limits, const KvShape& shape, uint32_t q_heads,
                                 uint32_t vocabulary) = 0;
  // Scratch for mix_experts() up to this shape; called like reserve_scratch(), by models that have experts.
  virtual Status reserve_experts(const ExpertsShape& /*shape*/) {
    return error(ErrorCode::kUnsupported, "the {} back end has no experts; use --backend cpu", info().name);
  }

  // A step. copy_pages comes before any write of the step and copies in the order listed: a later copy may fill the
  // source of an earlier one. What went wrong while a step before was enqueued comes back here, unless collect() or
  // finish() has said it. The block is not written again before this step was collected or finished. kInvalidArgument where
  // steps of another block are not collected: an engine that takes turns does not run ahead. What is refused is not begun, and
  // who was refused has nothing to finish().
  virtual Result<DeviceBatch> begin_step(const StepBlock& block) = 0;
  // Records what `work` enqueues, without running it, for steps that enqueue the same but for what stands in the step block.
  // kUnsupported without BackendInfo::records.
  virtual Result<std::unique_ptr<Recording>> record(const std::function<void()>& /*work*/) {
    return error(ErrorCode::kUnsupported, "the {} back end records nothing", info().name);
  }
  virtual void copy_pages(KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) = 0;
  virtual void embed(const EmbedParams& params) = 0;
  virtual void add_norm(const AddNormParams& params) = 0;
  virtual void matmul(const MatmulParams& params) = 0;
  virtual void rope_append(const RopeAppendParams& params) = 0;
  virtual void attend(
      const AttentionParams& params) = 0;  // writes partials to the back end's scratch, kDirect rows to out
  virtual void merge(
      const AttentionParams& params) = 0;  // folds partials in table order into out (and lse2); empty rows -> 0
  virtual void gate_mul(const GateMulParams& params) = 0;
  virtual void gated_matmul(const GatedMatmulParams& params) {  // in one where that is faster
    const Product products[] = {params.gate, params.up};
    matmul({params.x, products});
    gate_mul({params.gate.out, params.up.out, params.out, params.activation});
  }
  virtual void mix_experts(const MixExpertsParams& params) = 0;
  virtual void cap_logits(const CapLogitsParams& params) = 0;
  virtual void gather_rows(const GatherRowsParams& params) = 0;
  virtual void sample(const SampleParams& params) = 0;  // enqueues
  // Waits for the oldest sample() that was not collected, of at most two (one without BackendInfo::runs_ahead), and
  // for nothing behind it; [L], valid until the next collect(). A row without a choosable token says so in its
  // Sampled::error; its neighbours are untouched.
  virtual Result<std::span<const Sampled>> collect() = 0;
  // Waits for everything enqueued; what was not collected is lost, so it is called by who has begun a step.
  virtual Status finish() = 0;

  // KV bytes that attend() read since the last call, counted by the kernels in debug builds; 0 in release builds.
  virtual uint64_t take_kv_bytes_read() = 0;

  // For benches. `work` enqueues operations of one step; it and what it refers to outlive the stopwatch. cold: with nothing
  // of it in the caches (host back ends leave them as they are).
  virtual Result<std::unique_ptr<Stopwatch>> create_stopwatch(std::function<void()> work, bool cold);
  // For benches: the time of a program that reads `bytes` in pieces of `piece_bytes` at random places and does nothing
  // else, on cold caches. No attention over so many bytes is faster. 0: not measured.
  virtual Result<double> read_floor_us(uint64_t /*bytes*/, uint32_t /*piece_bytes*/) { return 0.0; }

  // Measures for about a third of a second, a device for a few; for benches, never during a step. group: query heads
  // per KV head.
  virtual Result<Peaks> measure_peaks(uint32_t /*group*/) { return Peaks(); }
};

}  // namespace headwater::ops
