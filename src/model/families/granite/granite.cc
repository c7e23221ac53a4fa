#include "model/families/granite/granite.h"

namespace headwater::model::granite {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h, {.pairs_in_gguf = true});
  h.expect_flag({"", "attention_bias"}, false);
  h.expect_flag({"", "mlp_bias"}, false);
  h.expect_flag({"rope.scaling.finetuned", ""}, true);  // false: without RoPE
  const auto multiplier = [&h](Key key, double absent) { return static_cast<float>(h.number(key, 1e-6, 1e6, absent)); };
  blueprint.attention_scale = multiplier({"attention.scale", "attention_multiplier"}, blueprint.attention_scale);
  blueprint.embedding_scale = multiplier({"embedding_scale", "embedding_multiplier"}, 1);
  blueprint.residual_scale = multiplier({"residual_scale", "residual_multiplier"}, 1);
  blueprint.logit_scale = 1 / multiplier({"logit_scale", "logits_scaling"}, 1);
  read_windows(h, blueprint, 0, 0);
  return blueprint;
}

}  // namespace headwater::model::granite
