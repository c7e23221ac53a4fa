#include "model/families/olmo2/olmo2.h"

namespace headwater::model::olmo2 {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h);
  h.expect_flag({"", "attention_bias"}, false);
  blueprint.attention_norm = {};
  blueprint.attention_norm_behind = {"post_attention_norm", "post_attention_layernorm"};
  blueprint.feed_forward_norm = {};
  blueprint.feed_forward_norm_behind = {"post_ffw_norm", "post_feedforward_layernorm"};
  blueprint.q_norm = {"attn_q_norm", "self_attn.q_norm"};
  blueprint.k_norm = {"attn_k_norm", "self_attn.k_norm"};
  blueprint.qk_norm_span = ops::NormSpan::kRow;
  read_windows(h, blueprint, 0, 0);
  return blueprint;
}

}  // namespace headwater::model::olmo2
