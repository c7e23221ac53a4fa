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

struct Vector {
  std::vector<float> values;    // may be empty
  const float* data = nullptr;  // where the back end reads them, after place_vectors(); null: there are none
};

struct LoadedLinear {
  WeightPtr weight;
  Vector bias;  // [rows] or empty
};

struct ExpertWeights {
  LoadedLinear gate, up, down;
};

struct LayerWeights {
  Vector attention_norm, attention_norm_behind;             // [d] or empty
  Vector feed_forward_norm, feed_forward_norm_behind;       // [d] or empty
  Vector q_norm, k_norm;                                    // [head_dim] or [heads * head_dim], or empty
  Vector sinks;                                             // [q_heads] or empty
  std::vector<LoadedLinear> attention_in, feed_forward_in;  // as Blueprint lists them
  LoadedLinear attention_out, feed_forward_out, router;
  std::vector<ExpertWeights> experts;
  std::vector<ops::Expert> expert_views;  // of `experts`

  std::vector<Vector*> vectors();  // all of the above
};

struct Weights {
  Blueprint blueprint;
  WeightPtr embedding;  // [vocabulary, d]; also the output projection when `output` is null
  WeightPtr output;
  Vector output_norm;
  std::vector<LayerWeights> layers;
  std::vector<std::shared_ptr<const void>> converted;  // memory of weights that the file holds in another way
};

// What becomes of a matrix that a file holds: a back end's prepare(), or the view kept as it is.
using Prepare = std::function<Result<WeightPtr>(const ops::WeightView&)>;

// Prepares tensors and reports progress by bytes.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const Prepare& prepare,
               std::vector<std::shared_ptr<const void>>* converted, void (*progress)(float));

  Status matrix(const Tensor& tensor, WeightPtr& out);  // F8_E4M3 becomes BF16
  Status parts(const Tensor& tensor, std::span<WeightPtr* const> out);
  // Bytes that a family made of tensors.
  Status matrix(std::vector<std::byte> bytes, DType dtype, uint64_t rows, uint64_t columns, WeightPtr& out);
  Status vector(const Tensor& tensor, std::vector<float>& out, float offset = 0);
  const Tensor& tensor(const std::string& name) const;  // which a slot named
  void report(const Tensor& tensor);

 private:
  template <typename Value>
  Status converted(std::vector<Value> values, DType dtype, uint64_t rows, uint64_t columns, WeightPtr& out);

  const Checkpoint& checkpoint_;
  const Prepare& prepare_;
  std::vector<std::shared_ptr<const void>>* converted_;
  void (*progress_)(float);
  uint64_t bytes_ = 0, done_ = 0;
};

// A tensor that the model takes, and where in Weights its rows go: to matrices or to vectors, in equal parts when there are
// several. The slots of a folder and of a GGUF file of one model name the same places, so what the ones loaded the others
// can write (write_gguf.h).
struct Slot {
  std::string name;
  uint64_t columns = 0;  // as Tensor::shape: columns first; rows: the product of the rest
  uint64_t rows = 0;
  std::vector<WeightPtr*> matrices = {};
  std::vector<std::vector<float>*> vectors = {};
  float offset = 0;  // added to the values of vectors
  // Of a family that keeps a tensor in a way of its own, instead of the places. Runs once the tensor has this shape.
  std::function<Status(WeightLoader&, const Tensor&)> load = {};

  uint32_t group = 0;               // 0: beside the layers; else the layer and 1
  uint32_t head_dim = 0;            // the file has rows of heads of this size for adjacent pairs; 0: as they are
  std::optional<DType> dtype = {};  // of the matrices, whatever the others of a GGUF file become
};

// Every tensor of the blueprint, bound to its place in `weights`, whose layers are sized here. `weights` outlives the slots.
// When there are fewer tensors, only somewhat more slots than tensors: check_slots() then finds one that is missing.
std::vector<Slot> bind_slots(uint64_t tensors, const Blueprint& blueprint, Weights& weights);

// Every slot's tensor is there and of its shape, and none is left over: else the model is another one than the blueprint says.
// numbers_read: tensors that were read with the hyperparameters.
Status check_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, const Blueprint& blueprint,
                   const std::set<std::string, std::less<>>& numbers_read);

// `converted`: Weights::converted; null where what is prepared does not read its view any more, so that of a folder of
// F8_E4M3 one tensor at a time is in memory as BF16. progress may be null.
Status load_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, const Prepare& prepare,
                  std::vector<std::shared_ptr<const void>>* converted, void (*progress)(float) = nullptr);

// Sets the data of every vector.
Status place_vectors(Weights& weights, ops::Backend& backend);

}  // namespace headwater::model
