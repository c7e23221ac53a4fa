// Random llama models of a few thousand weights, as GGUF images in memory. A test may change tensors and metadata
// before it takes the image.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/core.h"
#include "support/gguf_writer.h"

namespace headwater::testing {

struct TinyShape {
  uint32_t layers = 2;
  uint32_t embedding = 64;
  uint32_t feed_forward = 160;
  uint32_t q_heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;  // q_heads * head_dim need not be the embedding's width
  uint32_t vocabulary = 300;
  bool tied = true;  // no output.weight: the embedding is the output projection
};

struct TinyModel {
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;  // columns first
  };
  std::map<std::string, std::variant<uint32_t, float, std::string>> metadata;
  std::vector<Tensor> tensors;

  TinyModel(const TinyShape& s, DType weights) {
    metadata = {{"general.architecture", std::string("llama")},
                {"general.name", std::string("tiny")},
                {"llama.block_count", s.layers},
                {"llama.embedding_length", s.embedding},
                {"llama.feed_forward_length", s.feed_forward},
                {"llama.context_length", 512u},
                {"llama.attention.head_count", s.q_heads},
                {"llama.attention.head_count_kv", s.kv_heads},
                {"llama.attention.key_length", s.head_dim},
                {"llama.attention.value_length", s.head_dim},
                {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
                {"llama.rope.freq_base", 10000.0f}};
    const uint64_t d = s.embedding, q = uint64_t{s.q_heads} * s.head_dim, kv = uint64_t{s.kv_heads} * s.head_dim;
    tensors = {{"token_embd.weight", weights, {d, s.vocabulary}}, {"output_norm.weight", DType::kF32, {d}}};
    if (!s.tied) tensors.push_back({"output.weight", weights, {d, s.vocabulary}});
    for (uint32_t layer = 0; layer < s.layers; ++layer) {
      const std::string block = fmt::format("blk.{}.", layer);
      tensors.push_back({block + "attn_norm.weight", DType::kF32, {d}});
      tensors.push_back({block + "attn_q.weight", weights, {d, q}});
      tensors.push_back({block + "attn_k.weight", weights, {d, kv}});
      tensors.push_back({block + "attn_v.weight", weights, {d, kv}});
      tensors.push_back({block + "attn_output.weight", weights, {q, d}});
      tensors.push_back({block + "ffn_norm.weight", DType::kF32, {d}});
      tensors.push_back({block + "ffn_gate.weight", weights, {d, s.feed_forward}});
      tensors.push_back({block + "ffn_up.weight", weights, {d, s.feed_forward}});
      tensors.push_back({block + "ffn_down.weight", weights, {s.feed_forward, d}});
    }
  }

  Tensor& tensor(std::string_view name) {
    for (Tensor& candidate : tensors) {
      if (candidate.name == name) return candidate;
    }
    check(false, "a tiny model has no tensor of that name");
    return tensors[0];
  }

  // Normal values whose products keep their size (deviation 1 / sqrt(columns)); norm weights near 1. writer: may have
  // metadata of its own, such as a tokenizer.
  std::vector<std::byte> image(uint64_t seed, GgufWriter writer = {}) const {
    for (const auto& [key, value] : metadata) {
      std::visit([&, &name = key](const auto& item) { writer.value(name, item); }, value);
    }
    Random random(seed);
    for (const Tensor& tensor : tensors) {
      uint64_t count = 1;
      for (const uint64_t size : tensor.shape) count *= size;
      const bool is_norm = tensor.shape.size() == 1;
      const float deviation = is_norm ? 0.1f : 1 / std::sqrt(static_cast<float>(tensor.shape[0]));
      if (!is_norm) {
        writer.tensor_bytes(tensor.name, GgufWriter::ggml_number(tensor.dtype), tensor.shape,
                            random_weight(tensor.dtype, count, deviation, random));
        continue;
      }
      std::vector<float> values(count);
      for (float& value : values) value = 1 + deviation * random.normal();
      writer.tensor(tensor.name, tensor.dtype, tensor.shape, values);
    }
    return writer.image();
  }
};

}  // namespace headwater::testing
