// What a decoder-only transformer consists of, as data. A family fills in a Blueprint from a file's numbers; one loader and
// one decoder (weights.h, decoder.h) read it, so that a family is what it does differently from Llama and nothing else.
//
//   x = embedding_scale * row of the embedding
//   every layer:  h = norm(x)                    attention_norm; none: h = x
//                 a = attention(h)               attention_in, [q_norm, k_norm], RoPE, window, softcap, sinks, attention_out
//                 x += residual_scale * a        or, with attention_norm_behind: norm(a)
//                 h = norm(x)                    feed_forward_norm; none: h = x
//                 f = feed_forward(h)            feed_forward_in, activation, feed_forward_out; or experts
//                 x += residual_scale * f        or, with feed_forward_norm_behind: norm(f)
//   logits = cap(logit_scale * head(norm(x)))
//
// Tensors are named by their stem in both formats: "attn_q" is blk.<layer>.attn_q.weight in GGUF, "self_attn.q_proj" is
// model.layers.<layer>.self_attn.q_proj.weight in a folder. An empty stem: the family has no such tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "model/transformer/hyperparameters.h"
#include "model/transformer/rope.h"

namespace headwater::model {

struct Stem {
  std::string_view gguf;
  std::string_view folder;
  bool empty() const { return gguf.empty() && folder.empty(); }
};

// A matrix of `rows` outputs, or the vector that adds to them.
struct Linear {
  Stem stem;
  uint64_t rows = 0;
  uint64_t columns = 0;
  bool bias = false;
  bool turned = false;  // rows of heads that RoPE turns
};

struct LayerPlan {
  uint32_t window = 0;  // index into ModelShape::windows
  uint32_t rope = 0;    // index into Blueprint::ropes
};

struct ExpertPlan {
  uint32_t count = 0;
  uint32_t used = 0;          // of each token
  uint32_t feed_forward = 0;  // width of one expert
  Linear router;
  // GGUF stacks the experts in one tensor each; a folder has a tensor an expert, its number in place of "{}".
  Stem gate = {"ffn_gate_exps", "mlp.experts.{}.gate_proj"};
  Stem up = {"ffn_up_exps", "mlp.experts.{}.up_proj"};
  Stem down = {"ffn_down_exps", "mlp.experts.{}.down_proj"};
  std::optional<DType> dtype;  // of the family's experts in every file
  bool bias = false;
  bool renormalize = true;  // ops::MixExpertsParams
};

struct LayerWeights;  // weights.h
struct Slot;

struct Blueprint {
  ModelShape shape;
  std::vector<LayerPlan> layers;  // [shape.layers]
  std::vector<RopeTable> ropes;

  Stem attention_norm = {"attn_norm", "input_layernorm"};
  Stem attention_norm_behind;
  Stem feed_forward_norm = {"ffn_norm", "post_attention_layernorm"};
  Stem feed_forward_norm_behind;
  float norm_offset = 0;  // added to every norm weight of a folder; GGUF holds the sum

  std::vector<Linear> attention_in;  // their outputs side by side are q, k, v
  Linear attention_out;
  Stem q_norm, k_norm;
  ops::NormSpan qk_norm_span = ops::NormSpan::kHead;
  Stem sinks;
  float attention_scale = 0;
  float attention_softcap = 0;

  std::vector<Linear> feed_forward_in;  // gate and up side by side; unused with experts
  Linear feed_forward_out;
  std::optional<ExpertPlan> experts;
  // The tensors of one layer's experts where a folder keeps them in a way of its own; null: as ExpertPlan says.
  void (*folder_expert_slots)(const Blueprint&, uint32_t layer, LayerWeights&, std::vector<Slot>&) = nullptr;
  ops::Activation activation = ops::Activation::kSilu;

  bool tied = false;  // the embedding is the output projection
  float embedding_scale = 1;
  float residual_scale = 1;
  float logit_scale = 1;
  float logit_softcap = 0;

  bool gguf = true;            // the format, which decides on names; the rest is the same in both
  bool pairs_in_gguf = false;  // CommonReading

  ops::RopeStyle rope_style() const {
    return gguf && pairs_in_gguf ? ops::RopeStyle::kAdjacentPairs : ops::RopeStyle::kHalves;
  }

  // "blk.3.attn_q.weight". ending: "weight" or "bias".
  std::string tensor_name(const Stem& stem, uint32_t layer, std::string_view ending) const;
  // Sizes are known; q, k and v in one tensor each, and likewise gate and up: the arrangement of most families.
  void separate_projections(bool attention_bias = false);
};

// What every family reads: sizes, epsilon, activation, whether the output is tied, one RoPE for all layers, no window. Rows of
// q and k lie as the format's converter leaves them: pairs_in_gguf says whether it permutes them for adjacent pairs.
struct CommonReading {
  bool pairs_in_gguf = false;
  bool tied = false;          // where config.json does not say
  uint32_t head_dim = 0;      // where the file does not say; 0: embedding / q_heads
  bool yarn_truncate = true;  // read_rope()
  std::string_view activation = "silu";
  Key activation_key = {"", "hidden_act"};
};
Blueprint read_common(Hyperparameters& h, const CommonReading& reading = {});

// Gives `window` to layers: those that the file lists (layer_types, sliding_window_pattern), else all but every
// `period`-th; period 0: all. window 0: none.
void read_windows(Hyperparameters& h, Blueprint& blueprint, uint32_t window, uint32_t period);
inline constexpr Key kWindow{"attention.sliding_window", "sliding_window"};

// What the start-up line says beyond sizes: "window 4096 in 13 of 26 layers, 4 of 32 experts, yarn x 32".
std::string describe_variant(const Blueprint& blueprint);

}  // namespace headwater::model
