#include "model/families/gemma2/gemma2.h"

#include <cmath>

namespace headwater::model::gemma2 {
namespace {

// Scores are divided by its root. GGUF does not keep it: it is the head size in all published models but those of 27 billion
// parameters, which their number of layers tells.
double query_scalar(Hyperparameters& h, const ModelShape& shape, uint32_t layers_27b) {
  if (!h.is_gguf()) return h.number({"", "query_pre_attn_scalar"}, 1, 1e6);
  return shape.layers == layers_27b ? shape.embedding / shape.q_heads : shape.head_dim;
}

}  // namespace

Blueprint read_gemma(Hyperparameters& h, uint32_t layers_27b) {
  Blueprint blueprint = read_common(
      h,
      {.tied = true, .head_dim = 256, .activation = "gelu_pytorch_tanh", .activation_key = {"", "hidden_activation"}});
  const ModelShape& shape = blueprint.shape;
  h.expect_flag({"", "attention_bias"}, false);
  h.ignore({"", "hidden_act"});           // files carry it beside hidden_activation, which counts
  h.ignore({"", "sliding_window_size"});  // early files of Gemma 2: sliding_window once more
  blueprint.attention_norm_behind = {"post_attention_norm", "post_attention_layernorm"};
  blueprint.feed_forward_norm = {"ffn_norm", "pre_feedforward_layernorm"};
  blueprint.feed_forward_norm_behind = {"post_ffw_norm", "post_feedforward_layernorm"};
  blueprint.norm_offset = 1;
  blueprint.activation = ops::Activation::kGeluTanh;
  blueprint.embedding_scale = std::sqrt(static_cast<float>(shape.embedding));
  blueprint.attention_scale = 1.0f / std::sqrt(static_cast<float>(query_scalar(h, shape, layers_27b)));
  return blueprint;
}

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_gemma(h, 46);
  const auto cap = [&h](Key key, double absent_in_gguf) {
    const std::optional<double> absent = h.is_gguf() ? std::optional(absent_in_gguf) : std::nullopt;
    return static_cast<float>(h.number(key, 1e-3, 1e6, absent));
  };
  blueprint.attention_softcap = cap({"attn_logit_softcapping", "attn_logit_softcapping"}, 50);
  blueprint.logit_softcap = cap({"final_logit_softcapping", "final_logit_softcapping"}, 30);
  read_windows(h, blueprint, h.integer(kWindow, 0, 1 << 24, 4096), 2);
  return blueprint;
}

}  // namespace headwater::model::gemma2
