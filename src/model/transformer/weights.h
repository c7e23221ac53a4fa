// The weights of a Blueprint: which tensors it takes (slots), and each of them prepared for a back end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/transformer/blueprint.h"
#include "ops/backend.h"

namespace headwater::model {

using WeightPtr = std::unique_ptr<ops::Weight>;

struct LoadedLinear {
  WeightPtr weight;
  std::vector<float> bias;  // [rows] or empty

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
};

struct ExpertWeights {
  LoadedLinear gate, up, down;
};

struct LayerWeights {
  std::vector<float> attention_norm, attention_norm_behind;        // [d] or empty
  std::vector<float> feed_forward_norm, feed_forward_norm_behind;  // [d] or empty
  std::vector<float> q_norm, k_norm;                               // [head_dim] or [heads * head_dim], or empty
  std::vector<float> sinks;                                        // [q_heads] or empty
  std::vector<LoadedLinear> attention_in, feed_forward_in;         // as Blueprint lists them
  LoadedLinear attention_out, feed_forward_out, router;
  std::vector<ExpertWeights> experts;
  std::vector<ops::Expert> expert_views;  // of `experts`
};

struct Weights {
  Blueprint blueprint;
  WeightPtr embedding;  // [vocabulary, d]; also the output projection when `output` is null
  WeightPtr output;
  std::vector<float> output_norm;
  std::vector<LayerWeights> layers;
  std::vector<std::shared_ptr<const void>> converted;  // memory of weights that the file holds in another way
};

// Prepares tensors for a back end and reports progress by bytes.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, ops::Backend& backend, std::vector<std::shared_ptr<const void>>& converted,
               void (*progress)(float));

  Status matrix(const Tensor& tensor, WeightPtr& out);  // F8_E4M3 becomes BF16
  // Of a tensor that stacks several matrices of `rows` rows.
  Status part(const Tensor& tensor, uint64_t index, uint64_t rows, WeightPtr& out);
  // Bytes that a family made of tensors; kept as long as the weights.
  Status matrix(std::vector<std::byte> bytes, DType dtype, uint64_t rows, uint64_t columns, WeightPtr& out);
  Status vector(const Tensor& tensor, std::vector<float>& out, float offset = 0);
  const Tensor& tensor(const std::string& name) const;  // which a slot named
  void report(const Tensor& tensor);

 private:
  const Checkpoint& checkpoint_;
  ops::Backend& backend_;
  std::vector<std::shared_ptr<const void>>& converted_;
  void (*progress_)(float);
  uint64_t bytes_ = 0, done_ = 0;
};

// A tensor that the model takes, and how. `load` runs once the tensor is known to have this shape.
struct Slot {
  std::string name;
  uint64_t columns;  // as Tensor::shape: columns first; rows: the product of the rest
  uint64_t rows;
  std::function<Status(WeightLoader&, const Tensor&)> load;
};

// Every tensor of the blueprint, bound to its place in `weights`, whose layers are sized here. `weights` outlives the slots.
// When the checkpoint has fewer tensors, only somewhat more slots than it has: check_slots() then finds one that is missing.
std::vector<Slot> bind_slots(const Checkpoint& checkpoint, const Blueprint& blueprint, Weights& weights);

// Every slot's tensor is there and of its shape, and none is left over: else the model is another one than the blueprint says.
// numbers_read: tensors that were read with the hyperparameters.
Status check_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, const Blueprint& blueprint,
                   const std::set<std::string, std::less<>>& numbers_read);

Status load_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, ops::Backend& backend, Weights& weights,
                  void (*progress)(float));

}  // namespace headwater::model
