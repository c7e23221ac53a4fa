#include "model/transformer/weights.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "model/f8_weight.h"

namespace headwater::model {
namespace {

// As the format has it: a folder names columns last.
std::string shape_text(std::vector<uint64_t> columns_first, bool gguf) {
  if (!gguf) std::ranges::reverse(columns_first);
  return fmt::format("[{}]", fmt::join(columns_first, ", "));
}

std::string shape_text(const Slot& slot, bool gguf) {
  return slot.rows == 1 ? shape_text({slot.columns}, gguf) : shape_text({slot.columns, slot.rows}, gguf);
}

// Adds the slots of one layer, or of what stands beside the layers.
class Binder {
 public:
  Binder(const Blueprint& blueprint, std::vector<Slot>& slots) : blueprint_(blueprint), slots_(slots) {}

  Slot& matrix(std::string name, uint64_t rows, uint64_t columns, WeightPtr& to) {
    return add({.name = std::move(name), .columns = columns, .rows = rows, .matrices = {&to}});
  }
  Slot& vector(std::string name, uint64_t size, Vector& to) {
    return add({.name = std::move(name), .columns = size, .rows = 1, .vectors = {&to.values}});
  }
  void norm(std::string name, uint64_t size, Vector& to) {
    vector(std::move(name), size, to).offset = blueprint_.gguf ? 0 : blueprint_.norm_offset;
  }
  void norm(const Stem& stem, uint32_t layer, uint64_t size, Vector& to) {
    if (!stem.empty()) norm(blueprint_.tensor_name(stem, layer, "weight"), size, to);
  }
  void linear(const Linear& plan, uint32_t layer, LoadedLinear& to) {
    const bool moved = plan.turned && blueprint_.rope_style() == ops::RopeStyle::kAdjacentPairs;
    const uint32_t head_dim = moved ? blueprint_.shape.head_dim : 0;
    matrix(blueprint_.tensor_name(plan.stem, layer, "weight"), plan.rows, plan.columns, to.weight).head_dim = head_dim;
    if (!plan.bias) return;
    vector(blueprint_.tensor_name(plan.stem, layer, "bias"), plan.rows, to.bias).head_dim = head_dim;
  }
  void linears(std::span<const Linear> plans, uint32_t layer, std::vector<LoadedLinear>& to) {
    to.resize(plans.size());
    for (size_t i = 0; i < plans.size(); ++i) linear(plans[i], layer, to[i]);
  }

  // One of an expert's three matrices, for all experts of a layer.
  void expert_part(const Stem& stem, uint32_t layer, uint64_t rows, uint64_t columns, LoadedLinear ExpertWeights::*part,
                   std::vector<ExpertWeights>& experts) {
    const ExpertPlan& plan = *blueprint_.experts;
    if (!blueprint_.gguf) {
      for (size_t index = 0; index < experts.size(); ++index) {
        const std::string folder = fmt::format(fmt::runtime(stem.folder), index);
        linear({{"", folder}, rows, columns, plan.bias}, layer, experts[index].*part);
      }
      return;
    }
    Slot weight = {.name = blueprint_.tensor_name(stem, layer, "weight"), .columns = columns, .dtype = plan.dtype};
    Slot bias = {.name = blueprint_.tensor_name(stem, layer, "bias"), .columns = rows, .rows = experts.size()};
    weight.rows = rows * experts.size();
    for (ExpertWeights& expert : experts) {
      weight.matrices.push_back(&(expert.*part).weight);
      bias.vectors.push_back(&(expert.*part).bias.values);
    }
    add(std::move(weight));
    if (plan.bias) add(std::move(bias));
  }

  void experts(uint32_t layer, LayerWeights& to) {
    const ExpertPlan& plan = *blueprint_.experts;
    const uint64_t d = blueprint_.shape.embedding;
    const size_t router = slots_.size();
    linear(plan.router, layer, to.router);
    slots_[router].dtype = DType::kF32;  // small, and what it rounds to decides which experts are asked
    to.experts.resize(plan.count);
    if (!blueprint_.gguf && blueprint_.folder_expert_slots != nullptr) {
      return blueprint_.folder_expert_slots(blueprint_, layer, to, slots_);
    }
    expert_part(plan.gate, layer, plan.feed_forward, d, &ExpertWeights::gate, to.experts);
    expert_part(plan.up, layer, plan.feed_forward, d, &ExpertWeights::up, to.experts);
    expert_part(plan.down, layer, d, plan.feed_forward, &ExpertWeights::down, to.experts);
  }

  void layer(uint32_t index, LayerWeights& to) {
    const size_t begin = slots_.size();
    const Blueprint& b = blueprint_;
    const ModelShape& shape = b.shape;
    const bool row = b.qk_norm_span == ops::NormSpan::kRow;
    norm(b.attention_norm, index, shape.embedding, to.attention_norm);
    linears(b.attention_in, index, to.attention_in);
    norm(b.q_norm, index, uint64_t{row ? shape.q_heads : 1} * shape.head_dim, to.q_norm);
    norm(b.k_norm, index, uint64_t{row ? shape.kv_heads : 1} * shape.head_dim, to.k_norm);
    if (!b.sinks.empty()) {
      std::string name = b.tensor_name(b.sinks, index, "weight");
      if (!b.gguf) name.resize(name.size() - std::string_view(".weight").size());
      vector(std::move(name), shape.q_heads, to.sinks);
    }
    linear(b.attention_out, index, to.attention_out);
    norm(b.attention_norm_behind, index, shape.embedding, to.attention_norm_behind);
    norm(b.feed_forward_norm, index, shape.embedding, to.feed_forward_norm);
    if (b.experts) {
      experts(index, to);
    } else {
      linears(b.feed_forward_in, index, to.feed_forward_in);
      linear(b.feed_forward_out, index, to.feed_forward_out);
    }
    norm(b.feed_forward_norm_behind, index, shape.embedding, to.feed_forward_norm_behind);
    for (size_t i = begin; i < slots_.size(); ++i) slots_[i].group = 1 + index;
  }

 private:
  Slot& add(Slot slot) {
    slots_.push_back(std::move(slot));
    return slots_.back();
  }

  const Blueprint& blueprint_;
  std::vector<Slot>& slots_;
};

// Tensors of a folder that are no weights of their own: frequencies that old files carry, an output projection that is tied,
// scales of F8_E4M3 weights (f8_weight.h reads them), and of the activations before such weights, which stay as they are.
bool is_harmless(std::string_view name, const Checkpoint& checkpoint, const Blueprint& blueprint) {
  if (blueprint.gguf) return false;
  if (name.ends_with(".rotary_emb.inv_freq") || (blueprint.tied && name == "lm_head.weight")) return true;
  for (const std::string_view ending : {".weight_scale", ".weight_scale_inv", ".input_scale"}) {
    if (!name.ends_with(ending)) continue;
    const Tensor* weight = checkpoint.find(fmt::format("{}.weight", name.substr(0, name.size() - ending.size())));
    return weight != nullptr && weight->dtype == DType::kF8E4M3;
  }
  return false;
}

Status load_slot(WeightLoader& loader, const Slot& slot) {
  const Tensor& tensor = loader.tensor(slot.name);
  if (slot.load) return slot.load(loader, tensor);
  if (slot.matrices.size() == 1) return loader.matrix(tensor, *slot.matrices[0]);
  if (!slot.matrices.empty()) return loader.parts(tensor, slot.matrices);
  std::vector<float> all;
  HEADWATER_RETURN_IF_ERROR(loader.vector(tensor, all, slot.offset));
  const size_t size = all.size() / slot.vectors.size();
  for (size_t i = 0; i < slot.vectors.size(); ++i) slot.vectors[i]->assign(&all[i * size], &all[i * size] + size);
  return {};
}

}  // namespace

WeightLoader::WeightLoader(const Checkpoint& checkpoint, const Prepare& prepare,
                           std::vector<std::shared_ptr<const void>>* converted, void (*progress)(float))
    : checkpoint_(checkpoint), prepare_(prepare), converted_(converted), progress_(progress) {
  for (const Tensor& tensor : checkpoint.tensors()) bytes_ += tensor.data.size();
}

Status WeightLoader::parts(const Tensor& tensor, std::span<WeightPtr* const> out) {
  const uint64_t rows = tensor.rows() / out.size(), bytes = rows * row_bytes(tensor.dtype, tensor.columns());
  for (size_t i = 0; i < out.size(); ++i) {
    auto prepared = prepare_({tensor.data.data() + i * bytes, tensor.dtype, rows, tensor.columns()});
    if (!prepared) return error(prepared.status().code(), "tensor {}: {}", tensor.name, prepared.status().message());
    *out[i] = std::move(prepared).value();
  }
  report(tensor);
  return {};
}

Status WeightLoader::matrix(const Tensor& tensor, WeightPtr& out) {
  if (tensor.dtype != DType::kF8E4M3 || checkpoint_.folder() == nullptr) {
    WeightPtr* const whole[] = {&out};
    return parts(tensor, whole);
  }
  HEADWATER_ASSIGN_OR_RETURN(std::vector<uint16_t> values, f8_weight_as_bf16(*checkpoint_.folder(), tensor));
  HEADWATER_RETURN_IF_ERROR(converted(std::move(values), DType::kBF16, tensor.rows(), tensor.columns(), out));
  report(tensor);
  return {};
}

Status WeightLoader::matrix(std::vector<std::byte> bytes, DType dtype, uint64_t rows, uint64_t columns,
                            WeightPtr& out) {
  return converted(std::move(bytes), dtype, rows, columns, out);
}

template <typename Value>
Status WeightLoader::converted(std::vector<Value> values, DType dtype, uint64_t rows, uint64_t columns,
                               WeightPtr& out) {
  const auto memory = std::make_shared<const std::vector<Value>>(std::move(values));
  if (converted_ != nullptr) converted_->push_back(memory);
  HEADWATER_ASSIGN_OR_RETURN(out, prepare_({std::as_bytes(std::span(*memory)).data(), dtype, rows, columns}));
  return {};
}

Status WeightLoader::vector(const Tensor& tensor, std::vector<float>& out, float offset) {
  if (!is_weight_type(tensor.dtype)) {
    return error(ErrorCode::kUnsupported, "tensor {} has type {}; expected a type of weights", tensor.name,
                 to_string(tensor.dtype));
  }
  out.resize(tensor.columns() * tensor.rows());
  for (uint64_t row = 0; row < tensor.rows(); ++row) {
    dequantize_row(tensor.dtype, tensor.data.data() + row * row_bytes(tensor.dtype, tensor.columns()), tensor.columns(),
                   &out[row * tensor.columns()]);
  }
  for (float& value : out) value += offset;
  report(tensor);
  return {};
}

const Tensor& WeightLoader::tensor(const std::string& name) const {
  const Tensor* tensor = checkpoint_.find(name);
  check(tensor != nullptr, "check_slots() comes before loading");
  return *tensor;
}

void WeightLoader::report(const Tensor& tensor) {
  done_ += tensor.data.size();
  if (progress_ != nullptr) progress_(static_cast<float>(done_) / static_cast<float>(bytes_));
}

std::vector<Slot> bind_slots(uint64_t tensors, const Blueprint& blueprint, Weights& weights) {
  const uint64_t d = blueprint.shape.embedding, vocabulary = blueprint.shape.vocabulary;
  const bool gguf = blueprint.gguf;
  std::vector<Slot> slots;
  Binder binder(blueprint, slots);
  binder.matrix(gguf ? "token_embd.weight" : "model.embed_tokens.weight", vocabulary, d, weights.embedding);
  if (!blueprint.tied) binder.matrix(gguf ? "output.weight" : "lm_head.weight", vocabulary, d, weights.output);
  binder.norm(gguf ? "output_norm.weight" : "model.norm.weight", d, weights.output_norm);
  weights.layers.resize(blueprint.shape.layers);
  for (uint32_t index = 0; index < blueprint.shape.layers && slots.size() <= tensors; ++index) {
    binder.layer(index, weights.layers[index]);
  }
  return slots;
}

std::vector<Vector*> LayerWeights::vectors() {
  std::vector<Vector*> all{
      &attention_norm, &attention_norm_behind, &feed_forward_norm, &feed_forward_norm_behind, &q_norm, &k_norm, &sinks};
  for (LoadedLinear& linear : attention_in) all.push_back(&linear.bias);
  for (LoadedLinear& linear : feed_forward_in) all.push_back(&linear.bias);
  for (LoadedLinear* linear : {&attention_out, &feed_forward_out, &router}) all.push_back(&linear->bias);
  for (ExpertWeights& expert : experts) {
    for (LoadedLinear* linear : {&expert.gate, &expert.up, &expert.down}) all.push_back(&linear->bias);
  }
  return all;
}

Status check_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, const Blueprint& blueprint,
                   const std::set<std::string, std::less<>>& numbers_read) {
  std::set<std::string_view> expected;
  for (const Slot& slot : slots) {
    const Tensor* tensor = checkpoint.find(slot.name);
    if (tensor == nullptr) {
      return error(ErrorCode::kCorrupt, "tensor {} {} is missing", slot.name, shape_text(slot, blueprint.gguf));
    }
    expected.insert(tensor->name);
    if (tensor->columns() != slot.columns || tensor->rows() != slot.rows) {
      return error(ErrorCode::kCorrupt, "tensor {} has shape {}; expected {}", slot.name,
                   shape_text(tensor->shape, blueprint.gguf), shape_text(slot, blueprint.gguf));
    }
    if (!slot.load && !is_weight_type(tensor->dtype) && tensor->dtype != DType::kF8E4M3) {
      return error(ErrorCode::kUnsupported, "tensor {} has type {}; expected a type of weights", slot.name,
                   to_string(tensor->dtype));
    }
  }
  for (const Tensor& tensor : checkpoint.tensors()) {
    if (expected.contains(tensor.name) || numbers_read.contains(tensor.name)) continue;
    if (is_harmless(tensor.name, checkpoint, blueprint)) continue;
    return error(ErrorCode::kUnsupported, "tensor {} {} is not part of the family '{}'; this variant is not supported",
                 tensor.name, shape_text(tensor.shape, blueprint.gguf), blueprint.shape.family);
  }
  return {};
}

Status load_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, const Prepare& prepare,
                  std::vector<std::shared_ptr<const void>>* converted, void (*progress)(float)) {
  WeightLoader loader(checkpoint, prepare, converted, progress);
  for (const Slot& slot : slots) HEADWATER_RETURN_IF_ERROR(load_slot(loader, slot));
  return {};
}

Status place_vectors(Weights& weights, ops::Backend& backend) {
  std::vector<Vector*> all{&weights.output_norm};
  for (LayerWeights& layer : weights.layers) {
    const std::vector<Vector*> of_layer = layer.vectors();
    all.insert(all.end(), of_layer.begin(), of_layer.end());
  }
  for (Vector* vector : all) {
    if (vector->values.empty()) continue;
    HEADWATER_ASSIGN_OR_RETURN(vector->data, backend.place(vector->values));
  }
  return {};
}

}  // namespace headwater::model
