#include "model/families/llama/llama.h"

namespace headwater::model::llama {

Result<ModelShape> read_shape(const GgufFile& file) {
  ModelShape shape;
  HEADWATER_ASSIGN_OR_RETURN(shape.layers, bounded_at(file, "llama.block_count", 1, 1024));
  HEADWATER_ASSIGN_OR_RETURN(shape.embedding, bounded_at(file, "llama.embedding_length", 1, 1 << 17));
  HEADWATER_ASSIGN_OR_RETURN(shape.feed_forward, bounded_at(file, "llama.feed_forward_length", 1, 1 << 20));
  HEADWATER_ASSIGN_OR_RETURN(shape.context_max, bounded_at(file, "llama.context_length", 1, 1 << 24));
  HEADWATER_ASSIGN_OR_RETURN(shape.q_heads, bounded_at(file, "llama.attention.head_count", 1, 4096));
  HEADWATER_ASSIGN_OR_RETURN(shape.kv_heads,
                             bounded_or(file, "llama.attention.head_count_kv", 1, shape.q_heads, shape.q_heads));
  if (shape.q_heads % shape.kv_heads != 0) {
    return error(ErrorCode::kCorrupt, "{} query heads are not a multiple of {} KV heads", shape.q_heads,
                 shape.kv_heads);
  }
  HEADWATER_ASSIGN_OR_RETURN(shape.head_dim,
                             bounded_or(file, "llama.attention.key_length", 1, 1024, shape.embedding / shape.q_heads));
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t v_head_dim,
                             bounded_or(file, "llama.attention.value_length", 1, 1024, shape.head_dim));
  if (v_head_dim != shape.head_dim) {
    return error(ErrorCode::kUnsupported, "value heads of {} beside key heads of {} are not supported", v_head_dim,
                 shape.head_dim);
  }
  if (shape.head_dim % 16 != 0 || shape.head_dim > 256) {
    return error(ErrorCode::kUnsupported, "head size {} is not supported; it must be a multiple of 16, at most 256",
                 shape.head_dim);
  }
  HEADWATER_ASSIGN_OR_RETURN(shape.rope_dims,
                             bounded_or(file, "llama.rope.dimension_count", 2, shape.head_dim, shape.head_dim));
  if (shape.rope_dims % 2 != 0)
    return error(ErrorCode::kCorrupt, "llama.rope.dimension_count {} is odd", shape.rope_dims);
  HEADWATER_ASSIGN_OR_RETURN(const double epsilon, file.number_at("llama.attention.layer_norm_rms_epsilon"));
  double base = 10000;
  if (file.has("llama.rope.freq_base")) {
    HEADWATER_ASSIGN_OR_RETURN(base, file.number_at("llama.rope.freq_base"));
  }
  if (!(epsilon > 0 && epsilon < 1)) return error(ErrorCode::kCorrupt, "RMSNorm epsilon {} is not in (0, 1)", epsilon);
  if (!(base > 1 && base < 1e12)) return error(ErrorCode::kCorrupt, "RoPE base {} is not in (1, 1e12)", base);
  shape.norm_epsilon = static_cast<float>(epsilon);
  shape.rope_base = static_cast<float>(base);
  if (file.has("llama.rope.scaling.type")) {
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view scaling, file.string_at("llama.rope.scaling.type"));
    if (scaling != "none") {
      return error(ErrorCode::kUnsupported, "RoPE scaling '{}' is not supported; known: none", scaling);
    }
  }
  const Tensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) return error(ErrorCode::kCorrupt, "tensor token_embd.weight is missing");
  if (embedding->rows() < 1 || embedding->rows() > (1u << 24)) {
    return error(ErrorCode::kCorrupt, "token_embd.weight has {} rows; expected 1 to {}", embedding->rows(), 1u << 24);
  }
  shape.vocabulary = static_cast<uint32_t>(embedding->rows());
  return shape;
}

std::vector<TensorSpec> tensors(const ModelShape& shape) {
  const uint64_t d = shape.embedding;
  const uint64_t q = uint64_t{shape.q_heads} * shape.head_dim;
  const uint64_t kv = uint64_t{shape.kv_heads} * shape.head_dim;
  std::vector<TensorSpec> specs = {{"token_embd.weight", d, shape.vocabulary},
                                   {"output_norm.weight", d, 1},
                                   {"output.weight", d, shape.vocabulary, true}};
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    specs.push_back({prefix + "attn_norm.weight", d, 1});
    specs.push_back({prefix + "attn_q.weight", d, q});
    specs.push_back({prefix + "attn_k.weight", d, kv});
    specs.push_back({prefix + "attn_v.weight", d, kv});
    specs.push_back({prefix + "attn_output.weight", q, d});
    specs.push_back({prefix + "ffn_norm.weight", d, 1});
    specs.push_back({prefix + "ffn_gate.weight", d, shape.feed_forward});
    specs.push_back({prefix + "ffn_up.weight", d, shape.feed_forward});
    specs.push_back({prefix + "ffn_down.weight", shape.feed_forward, d});
  }
  return specs;
}

}  // namespace headwater::model::llama
