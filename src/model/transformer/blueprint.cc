#include "model/transformer/blueprint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/shown.h"
#include "ops/logit_blocks.h"

namespace headwater::model {
namespace {

constexpr Key kEmbedding{"embedding_length", "hidden_size"};
constexpr Key kFeedForward{"feed_forward_length", "intermediate_size"};
constexpr Key kContext{"context_length", "max_position_embeddings"};
constexpr Key kHeads{"attention.head_count", "num_attention_heads"};
constexpr Key kKvHeads{"attention.head_count_kv", "num_key_value_heads"};
constexpr Key kKeyLength{"attention.key_length", "head_dim"};
constexpr Key kValueLength{"attention.value_length", ""};
constexpr Key kRopeDims{"rope.dimension_count", ""};
constexpr Key kVocabulary{"vocab_size", "vocab_size"};
constexpr Key kRopePart{"", "partial_rotary_factor"};

void read_heads(Hyperparameters& h, ModelShape& shape, uint32_t head_dim_absent) {
  shape.q_heads = h.integer(kHeads, 1, 4096);
  shape.kv_heads = h.integer(kKvHeads, 1, shape.q_heads, shape.q_heads);
  if (shape.q_heads % shape.kv_heads != 0) {
    h.fail(
        error(ErrorCode::kCorrupt, "{} query heads are not a multiple of {} KV heads", shape.q_heads, shape.kv_heads));
  }
  if (head_dim_absent == 0) head_dim_absent = shape.embedding / shape.q_heads;
  shape.head_dim = h.integer(kKeyLength, 1, 1024, head_dim_absent);
  const uint32_t v_head_dim = h.integer(kValueLength, 1, 1024, shape.head_dim);
  if (v_head_dim != shape.head_dim) {
    h.fail(error(ErrorCode::kUnsupported, "value heads of {} beside key heads of {} are not supported", v_head_dim,
                 shape.head_dim));
  }
  if (shape.head_dim % 16 != 0 || shape.head_dim > 256 || shape.head_dim == 0) {
    h.fail(error(ErrorCode::kUnsupported, "head size {} is not supported; it must be a multiple of 16, at most 256",
                 shape.head_dim));
    shape.head_dim = 16;
  }
}

void read_rope_shape(Hyperparameters& h, ModelShape& shape) {
  const double part = h.number(kRopePart, 0.01, 1.0, 1.0);
  const auto dims = static_cast<uint32_t>(shape.head_dim * part);
  shape.rope_dims = h.integer(kRopeDims, 2, shape.head_dim, dims);
  if (shape.rope_dims % 2 != 0 || shape.rope_dims == 0) {
    h.fail(error(ErrorCode::kCorrupt, "{} rotated dimensions of a head ({}) are odd or none", shape.rope_dims,
                 h.key_text(h.is_gguf() ? kRopeDims : kRopePart)));
    shape.rope_dims = 2;
  }
  shape.rope_base = static_cast<float>(h.number({"rope.freq_base", "rope_theta"}, 1.001, 1e12, 10000.0));
}

void read_vocabulary(Hyperparameters& h, ModelShape& shape) {
  if (h.checkpoint().tensors().empty()) {  // a config.json alone
    shape.vocabulary = h.integer({"", "vocab_size"}, 1, ops::kVocabularyMax);
    return;
  }
  const std::string_view name = h.is_gguf() ? "token_embd.weight" : "model.embed_tokens.weight";
  const Tensor* embedding = h.checkpoint().find(name);
  if (embedding == nullptr) return h.fail(error(ErrorCode::kCorrupt, "tensor {} is missing", name));
  const uint64_t rows = embedding->rows();
  if (rows < 1 || rows > ops::kVocabularyMax) {
    return h.fail(error(ErrorCode::kCorrupt, "{} has {} rows; expected 1 to {}", name, rows, ops::kVocabularyMax));
  }
  shape.vocabulary = static_cast<uint32_t>(rows);
  const uint32_t said =
      h.is_gguf() ? shape.vocabulary : h.integer(kVocabulary, 1, ops::kVocabularyMax, shape.vocabulary);
  if (said != shape.vocabulary) {
    h.fail(error(ErrorCode::kCorrupt, "vocab_size is {}, but {} has {} rows", said, name, rows));
  }
}

ModelShape read_shape(Hyperparameters& h, uint32_t head_dim_absent) {
  ModelShape shape;
  shape.name = shown(h.name());
  shape.layers = h.integer({"block_count", "num_hidden_layers"}, 1, 1024);
  shape.embedding = h.integer(kEmbedding, 1, 1 << 17);
  shape.feed_forward = h.integer(kFeedForward, 1, 1 << 20);
  shape.context_max = h.integer(kContext, 1, 1 << 24);
  read_heads(h, shape, head_dim_absent);
  read_rope_shape(h, shape);
  const double epsilon = h.number({"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, 0, 1e30);
  if (!(epsilon > 0 && epsilon < 1)) {
    h.fail(error(ErrorCode::kCorrupt, "RMSNorm epsilon {} is not in (0, 1)", epsilon));
  }
  shape.norm_epsilon = static_cast<float>(epsilon);
  read_vocabulary(h, shape);
  for (const Tensor& tensor : h.checkpoint().tensors()) shape.weight_bytes += tensor.data.size();
  return shape;
}

constexpr Key kPattern{"attention.sliding_window_pattern", "sliding_window_pattern"};

// Whether each layer has the window; empty: the file does not say.
std::vector<bool> listed_windows(Hyperparameters& h, uint32_t layers, uint32_t& period) {
  constexpr Key kTypes{"", "layer_types"};
  const std::vector<std::string> types = h.texts(kTypes, layers);
  std::vector<bool> windows;
  for (const std::string& type : types) {
    windows.push_back(type == "sliding_attention");
    if (type != "sliding_attention" && type != "full_attention") {
      h.fail(error(ErrorCode::kUnsupported, "layer_types holds {}; known: full_attention, sliding_attention",
                   quoted(type)));
    }
  }
  if (h.is_gguf() && h.has(kPattern) && h.checkpoint().gguf()->bools_at(h.key_text(kPattern))) {
    return h.flags(kPattern, layers);
  }
  period = h.integer(h.is_gguf() ? kPattern : Key{"", kPattern.folder}, 0, 1024, period);
  return windows;
}

// What the tensors cannot say themselves: their types and the scales beside them are told by name and shape.
void check_quantisation(Hyperparameters& h) {
  static constexpr std::string_view kKnown[] = {"", "fp8", "fbgemm_fp8", "compressed-tensors", "mxfp4"};
  const std::string method = h.text({"", "quantization_config.quant_method"}, "");
  if (std::ranges::find(kKnown, method) == std::end(kKnown)) {
    h.fail(error(ErrorCode::kUnsupported, "quantization_config.quant_method is {}; known: {}", quoted(method),
                 fmt::join(std::span(kKnown).subspan(1), ", ")));
  }
  if (method == "compressed-tensors") h.expect_text({"", "quantization_config.format"}, "float-quantized", "");
}

}  // namespace

std::string Blueprint::tensor_name(const Stem& stem, uint32_t layer, std::string_view ending) const {
  return gguf ? fmt::format("blk.{}.{}.{}", layer, stem.gguf, ending)
              : fmt::format("model.layers.{}.{}.{}", layer, stem.folder, ending);
}

void Blueprint::separate_projections(bool attention_bias) {
  const uint64_t d = shape.embedding, n = shape.feed_forward;
  const uint64_t q = uint64_t{shape.q_heads} * shape.head_dim, k = uint64_t{shape.kv_heads} * shape.head_dim;
  attention_in = {{{"attn_q", "self_attn.q_proj"}, q, d, attention_bias, /*turned=*/true},
                  {{"attn_k", "self_attn.k_proj"}, k, d, attention_bias, /*turned=*/true},
                  {{"attn_v", "self_attn.v_proj"}, k, d, attention_bias}};
  attention_out = {{"attn_output", "self_attn.o_proj"}, d, q};
  feed_forward_in = {{{"ffn_gate", "mlp.gate_proj"}, n, d}, {{"ffn_up", "mlp.up_proj"}, n, d}};
  feed_forward_out = {{"ffn_down", "mlp.down_proj"}, d, n};
}

Blueprint read_common(Hyperparameters& h, const CommonReading& reading) {
  Blueprint blueprint;
  blueprint.gguf = h.is_gguf();
  blueprint.shape = read_shape(h, reading.head_dim);
  const ModelShape& shape = blueprint.shape;
  h.expect_text(reading.activation_key, reading.activation, reading.activation);
  h.expect_flag({"attention.causal", "is_causal"}, true);
  check_quantisation(h);
  blueprint.tied =
      h.is_gguf() ? h.checkpoint().find("output.weight") == nullptr : h.flag({"", "tie_word_embeddings"}, reading.tied);
  blueprint.pairs_in_gguf = reading.pairs_in_gguf;
  blueprint.ropes = {read_rope(h, shape.rope_base, shape.rope_dims, shape.context_max, reading.yarn_truncate)};
  blueprint.layers.resize(shape.layers);
  blueprint.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  blueprint.separate_projections();
  return blueprint;
}

void read_windows(Hyperparameters& h, Blueprint& blueprint, uint32_t window, uint32_t period) {
  const auto layers = static_cast<uint32_t>(blueprint.layers.size());
  const auto by_period = [](uint32_t layer, uint32_t every) { return every == 0 || (layer + 1) % every != 0; };
  const uint32_t usual_period = period;
  const std::vector<bool> listed = listed_windows(h, layers, period);
  if (window == 0) {
    if (std::ranges::count(listed, true) > 0) {
      h.fail(
          error(ErrorCode::kCorrupt, "layers are listed as having a window, and {} is missing", h.key_text(kWindow)));
    }
    return;
  }
  std::vector<bool> has_window = listed, usual;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    if (listed.empty()) has_window.push_back(by_period(layer, period));
    usual.push_back(by_period(layer, usual_period));
  }
  if (has_window != usual) h.say(kPattern.gguf, has_window);
  std::vector<uint32_t>& windows = blueprint.shape.windows;
  windows.clear();
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const uint32_t own = has_window[layer] ? window : 0;
    const auto found = std::ranges::find(windows, own);
    blueprint.layers[layer].window = static_cast<uint32_t>(found - windows.begin());
    if (found == windows.end()) windows.push_back(own);
  }
}

std::string describe_variant(const Blueprint& blueprint) {
  std::vector<std::string> parts;
  const ModelShape& shape = blueprint.shape;
  for (size_t index = 0; index < shape.windows.size(); ++index) {
    if (shape.windows[index] == 0) continue;
    const auto count = std::ranges::count_if(blueprint.layers, [&](const LayerPlan& l) { return l.window == index; });
    parts.push_back(fmt::format("window {} in {} of {} layers", shape.windows[index], count, shape.layers));
  }
  if (blueprint.experts) {
    parts.push_back(fmt::format("{} of {} experts", blueprint.experts->used, blueprint.experts->count));
  }
  if (!blueprint.sinks.empty()) parts.emplace_back("sinks");
  if (blueprint.attention_softcap > 0) parts.emplace_back("soft caps");
  for (const RopeTable& rope : blueprint.ropes) {
    if (!rope.description.empty()) parts.push_back(rope.description);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace headwater::model
