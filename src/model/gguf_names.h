// From the names of a folder (config.json's model_type, the tensors of safetensors) to those of GGUF.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headwater::model {

struct GgufName {
  std::string name;  // "blk.3.attn_q.weight"
  // Rows of a head are rotated in pairs: a folder has element i beside i + head_dim / 2, GGUF's llama beside i + 1.
  // Which heads these are, for the tensors whose rows move.
  enum class Heads : uint8_t { kNone, kQuery, kKeyValue } heads = Heads::kNone;
};

// "mistral" -> "llama": GGUF's general.architecture; none for a model type without a row in the table.
std::optional<std::string_view> gguf_architecture(std::string_view model_type);
std::string gguf_model_types();  // the known ones, for messages

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"; none for a tensor the architecture has not.
std::optional<GgufName> gguf_name(std::string_view architecture, std::string_view tensor);

// Whether GGUF leaves a tensor out because it follows from config.json (inverse frequencies of RoPE).
bool is_left_out(std::string_view tensor);

// Row of a folder that becomes `row` of GGUF, when pairs move from halves to neighbours within heads of head_dim.
uint64_t row_of_pair(uint64_t row, uint64_t head_dim);

}  // namespace headwater::model
