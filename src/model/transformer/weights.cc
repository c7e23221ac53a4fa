#include "model/transformer/weights.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "model/f8_weight.h"

namespace headwater::model {
namespace {

std::string shape_text(uint64_t columns, uint64_t rows) {
  return rows == 1 ? fmt::format("[{}]", columns) : fmt::format("[{}, {}]", columns, rows);
}

// Adds the slots of one layer, or of what stands beside the layers.
class Binder {
 public:
  Binder(const Blueprint& blueprint, std::vector<Slot>& slots) : blueprint_(blueprint), slots_(slots) {}

  void matrix(std::string name, uint64_t rows, uint64_t columns, WeightPtr& to) {
    slots_.push_back({std::move(name), columns, rows,
                      [&to](WeightLoader& loader, const Tensor& tensor) { return loader.matrix(tensor, to); }});
  }
  void vector(std::string name, uint64_t size, std::vector<float>& to, float offset = 0) {
    slots_.push_back({std::move(name), size, 1, [&to, offset](WeightLoader& loader, const Tensor& tensor) {
                        return loader.vector(tensor, to, offset);
                      }});
  }
  void norm(const Stem& stem, uint32_t layer, uint64_t size, std::vector<float>& to) {
    if (stem.empty()) return;
    vector(blueprint_.tensor_name(stem, layer, "weight"), size, to, blueprint_.norm_offset);
  }
  void linear(const Linear& plan, uint32_t layer, LoadedLinear& to) {
    matrix(blueprint_.tensor_name(plan.stem, layer, "weight"), plan.rows, plan.columns, to.weight);
    if (plan.bias) vector(blueprint_.tensor_name(plan.stem, layer, "bias"), plan.rows, to.bias);
  }
  void linears(std::span<const Linear> plans, uint32_t layer, std::vector<LoadedLinear>& to) {
    to.resize(plans.size());
    for (size_t i = 0; i < plans.size(); ++i) linear(plans[i], layer, to[i]);
  }

  // One of an expert's three matrices, for all experts of a layer.
  void expert_part(const Stem& stem, uint32_t layer, uint64_t rows, uint64_t columns, LoadedLinear ExpertWeights::*part,
                   std::vector<ExpertWeights>& experts) {
    const bool bias = blueprint_.experts->bias;
    if (!blueprint_.gguf) {
      for (size_t index = 0; index < experts.size(); ++index) {
        const std::string folder = fmt::format(fmt::runtime(stem.folder), index);
        linear({{"", folder}, rows, columns, bias}, layer, experts[index].*part);
      }
      return;
    }
    slots_.push_back({blueprint_.tensor_name(stem, layer, "weight"), columns, rows * experts.size(),
                      [&experts, part, rows](WeightLoader& loader, const Tensor& tensor) -> Status {
                        for (size_t index = 0; index < experts.size(); ++index) {
                          WeightPtr& to = (experts[index].*part).weight;
                          HEADWATER_RETURN_IF_ERROR(loader.part(tensor, index, rows, to));
                        }
                        loader.report(tensor);
                        return {};
                      }});
    if (!bias) return;
    slots_.push_back({blueprint_.tensor_name(stem, layer, "bias"), rows, experts.size(),
                      [&experts, part, rows](WeightLoader& loader, const Tensor& tensor) -> Status {
                        std::vector<float> all;
                        HEADWATER_RETURN_IF_ERROR(loader.vector(tensor, all));
                        for (size_t index = 0; index < experts.size(); ++index) {
                          const float* from = &all[index * rows];
                          (experts[index].*part).bias.assign(from, from + rows);
                        }
                        return {};
                      }});
  }

  void experts(uint32_t layer, LayerWeights& to) {
    const ExpertPlan& plan = *blueprint_.experts;
    const uint64_t d = blueprint_.shape.embedding;
    linear(plan.router, layer, to.router);
    to.experts.resize(plan.count);
    if (blueprint_.expert_slots != nullptr) return blueprint_.expert_slots(blueprint_, layer, to, slots_);
    expert_part(plan.gate, layer, plan.feed_forward, d, &ExpertWeights::gate, to.experts);
    expert_part(plan.up, layer, plan.feed_forward, d, &ExpertWeights::up, to.experts);
    expert_part(plan.down, layer, d, plan.feed_forward, &ExpertWeights::down, to.experts);
  }

  void layer(uint32_t index, LayerWeights& to) {
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
  }

 private:
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

}  // namespace

WeightLoader::WeightLoader(const Checkpoint& checkpoint, ops::Backend& backend,
                           std::vector<std::shared_ptr<const void>>& converted, void (*progress)(float))
    : checkpoint_(checkpoint), backend_(backend), converted_(converted), progress_(progress) {
  for (const Tensor& tensor : checkpoint.tensors()) bytes_ += tensor.data.size();
}

Status WeightLoader::part(const Tensor& tensor, uint64_t index, uint64_t rows, WeightPtr& out) {
  const uint64_t bytes = rows * row_bytes(tensor.dtype, tensor.columns());
  auto prepared = backend_.prepare({tensor.data.data() + index * bytes, tensor.dtype, rows, tensor.columns()});
  if (!prepared) return error(prepared.status().code(), "tensor {}: {}", tensor.name, prepared.status().message());
  out = std::move(prepared).value();
  return {};
}

Status WeightLoader::matrix(const Tensor& tensor, WeightPtr& out) {
  if (tensor.dtype == DType::kF8E4M3 && checkpoint_.folder() != nullptr) {
    HEADWATER_ASSIGN_OR_RETURN(std::vector<uint16_t> values, f8_weight_as_bf16(*checkpoint_.folder(), tensor));
    const auto memory = std::make_shared<const std::vector<uint16_t>>(std::move(values));
    converted_.push_back(memory);
    const auto* bytes = reinterpret_cast<const std::byte*>(memory->data());
    HEADWATER_ASSIGN_OR_RETURN(out, backend_.prepare({bytes, DType::kBF16, tensor.rows(), tensor.columns()}));
  } else {
    HEADWATER_RETURN_IF_ERROR(part(tensor, 0, tensor.rows(), out));
  }
  report(tensor);
  return {};
}

Status WeightLoader::matrix(std::vector<std::byte> bytes, DType dtype, uint64_t rows, uint64_t columns,
                            WeightPtr& out) {
  const auto memory = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  converted_.push_back(memory);
  HEADWATER_ASSIGN_OR_RETURN(out, backend_.prepare({memory->data(), dtype, rows, columns}));
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

std::vector<Slot> bind_slots(const Checkpoint& checkpoint, const Blueprint& blueprint, Weights& weights) {
  const uint64_t d = blueprint.shape.embedding, vocabulary = blueprint.shape.vocabulary;
  const bool gguf = blueprint.gguf;
  std::vector<Slot> slots;
  Binder binder(blueprint, slots);
  binder.matrix(gguf ? "token_embd.weight" : "model.embed_tokens.weight", vocabulary, d, weights.embedding);
  if (!blueprint.tied) binder.matrix(gguf ? "output.weight" : "lm_head.weight", vocabulary, d, weights.output);
  binder.vector(gguf ? "output_norm.weight" : "model.norm.weight", d, weights.output_norm, blueprint.norm_offset);
  weights.layers.resize(blueprint.shape.layers);
  const size_t tensors = checkpoint.tensors().size();
  for (uint32_t index = 0; index < blueprint.shape.layers && slots.size() <= tensors; ++index) {
    binder.layer(index, weights.layers[index]);
  }
  return slots;
}

Status check_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, const Blueprint& blueprint,
                   const std::set<std::string, std::less<>>& numbers_read) {
  std::set<std::string_view> expected;
  for (const Slot& slot : slots) {
    const Tensor* tensor = checkpoint.find(slot.name);
    if (tensor == nullptr) {
      return error(ErrorCode::kCorrupt, "tensor {} {} is missing", slot.name, shape_text(slot.columns, slot.rows));
    }
    expected.insert(tensor->name);
    if (tensor->columns() != slot.columns || tensor->rows() != slot.rows) {
      return error(ErrorCode::kCorrupt, "tensor {} has shape [{}]; expected {}", slot.name,
                   fmt::join(tensor->shape, ", "), shape_text(slot.columns, slot.rows));
    }
  }
  for (const Tensor& tensor : checkpoint.tensors()) {
    if (expected.contains(tensor.name) || numbers_read.contains(tensor.name)) continue;
    if (is_harmless(tensor.name, checkpoint, blueprint)) continue;
    return error(ErrorCode::kUnsupported,
                 "tensor {} [{}] is not part of the family '{}'; this variant is not supported", tensor.name,
                 fmt::join(tensor.shape, ", "), blueprint.shape.family);
  }
  return {};
}

Status load_slots(const Checkpoint& checkpoint, std::span<const Slot> slots, ops::Backend& backend, Weights& weights,
                  void (*progress)(float)) {
  WeightLoader loader(checkpoint, backend, weights.converted, progress);
  for (const Slot& slot : slots) HEADWATER_RETURN_IF_ERROR(slot.load(loader, loader.tensor(slot.name)));
  for (LayerWeights& layer : weights.layers) {
    for (const ExpertWeights& e : layer.experts) {
      layer.expert_views.push_back({e.gate.weight.get(), e.up.weight.get(), e.down.weight.get(), e.gate.bias_data(),
                                    e.up.bias_data(), e.down.bias_data()});
    }
  }
  return {};
}

}  // namespace headwater::model
