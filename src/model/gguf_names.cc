#include "model/gguf_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

namespace headwater::model {
namespace {

using Heads = GgufName::Heads;

struct NameRow {
  std::string_view folder;  // below "model.layers.N." where in_layer
  std::string_view gguf;    // below "blk.N."
  Heads heads = Heads::kNone;
};

constexpr NameRow kOuter[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

constexpr NameRow kLlamaLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight", Heads::kQuery},
    {"self_attn.k_proj.weight", "attn_k.weight", Heads::kKeyValue},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

struct Architecture {
  std::string_view model_type;
  std::string_view gguf;
  std::span<const NameRow> layer;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama", kLlamaLayer},
    {"mistral", "llama", kLlamaLayer},
};

constexpr std::string_view kLayers = "model.layers.";

const NameRow* find_row(std::span<const NameRow> rows, std::string_view tensor) {
  const auto found = std::ranges::find(rows, tensor, &NameRow::folder);
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

std::optional<std::string_view> gguf_architecture(std::string_view model_type) {
  const auto* found = std::ranges::find(kArchitectures, model_type, &Architecture::model_type);
  return found == std::end(kArchitectures) ? std::nullopt : std::optional(found->gguf);
}

std::string gguf_model_types() {
  std::vector<std::string_view> types;
  for (const Architecture& architecture : kArchitectures) types.push_back(architecture.model_type);
  return fmt::format("{}", fmt::join(types, ", "));
}

std::optional<GgufName> gguf_name(std::string_view architecture, std::string_view tensor) {
  const auto* found = std::ranges::find(kArchitectures, architecture, &Architecture::gguf);
  if (found == std::end(kArchitectures)) return std::nullopt;
  if (const NameRow* row = find_row(kOuter, tensor)) return GgufName{std::string(row->gguf), row->heads};
  if (!tensor.starts_with(kLayers)) return std::nullopt;
  tensor.remove_prefix(kLayers.size());
  const size_t dot = tensor.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view number = tensor.substr(0, dot);
  const bool is_number =
      !number.empty() && number.size() <= 5 && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
  const NameRow* row = find_row(found->layer, tensor.substr(dot + 1));
  if (!is_number || row == nullptr) return std::nullopt;
  return GgufName{fmt::format("blk.{}.{}", number, row->gguf), row->heads};
}

bool is_left_out(std::string_view tensor) {
  return tensor.ends_with(".rotary_emb.inv_freq");
}

uint64_t row_of_pair(uint64_t row, uint64_t head_dim) {
  const uint64_t first = row / head_dim * head_dim, pair = row % head_dim / 2;
  return first + pair + (row % 2 == 0 ? 0 : head_dim / 2);
}

}  // namespace headwater::model
