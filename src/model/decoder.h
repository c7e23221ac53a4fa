// A model ready to run: shape, and one forward pass over a step's batch.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/core.h"
#include "model/checkpoint.h"
#include "ops/backend.h"

namespace headwater::model {

struct ModelShape {
  std::string family;   // "llama"
  std::string variant;  // what else the start-up line says: "window 4096 in 13 of 26 layers"; may be empty
  std::string name;     // as the file calls itself
  uint32_t layers = 0;
  uint32_t embedding = 0;  // width of the residual stream
  uint32_t feed_forward = 0;
  uint32_t q_heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocabulary = 0;
  uint32_t context_max = 0;  // tokens the model was trained for
  float norm_epsilon = 0;
  float rope_base = 0;
  uint32_t rope_dims = 0;
  uint64_t weight_bytes = 0;  // as stored
  // The different attention windows of the layers, in tokens (0: none), at most ops::kPlansMax. A step has a plan for each;
  // AttentionParams::plan of a layer is the index of its window here.
  std::vector<uint32_t> windows = {0};

  // The plan that reads most: of the widest window, none being wider than any.
  uint32_t widest_plan() const {
    const auto widest = std::ranges::max_element(windows, {}, [](uint32_t window) { return window - 1; });  // 0 wraps
    return static_cast<uint32_t>(widest - windows.begin());
  }
  ops::KvShape kv_shape(uint32_t page_size, uint32_t pages, DType dtype) const {
    return {layers, kv_heads, head_dim, head_dim, page_size, pages, dtype};
  }
};

// What the engine runs. One instance serves one engine at a time per set of activations; weights may be shared.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual const ModelShape& shape() const = 0;
  // Sizes activations and the back end's scratch for steps up to these limits. Before the first forward(), and
  // again for other limits or another engine: what the call before took is given back. After a failure it must succeed before
  // the next forward().
  virtual Status prepare(const ops::StepLimits& limits, const ops::KvShape& kv) = 0;
  // Appends the batch's keys and values to the pool and returns the logits of batch.logits_tokens: [L, vocabulary], device
  // memory, valid until the next forward(). Enqueues on the back end's stream; allocates nothing, but
  // where a back end records steps, for the first of a size.
  virtual Result<ops::Matrix> forward(const ops::DeviceBatch& batch, ops::KvPool& pool) = 0;
};

// The checks before anything runs: every tensor of the family present, of the right shape, none left over; every number of
// the metadata in range. Errors name the tensor or key, what was found and what was expected.
Result<ModelShape> read_shape(const Checkpoint& checkpoint);
Status check_tensors(const Checkpoint& checkpoint);

// The weights of one checkpoint prepared for one back end. Checkpoint and back end outlive it.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelShape& shape() const = 0;
  virtual Result<std::unique_ptr<Decoder>> create_decoder() = 0;  // shares the weights; several may exist
};

// Picks the family by general.architecture or model_type (kUnsupported lists the known ones) and loads. progress: 0..1, may
// be null.
Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, ops::Backend& backend,
                                          void (*progress)(float) = nullptr);

}  // namespace headwater::model
