#include "model/families/phi3/phi3.h"

namespace headwater::model::phi3 {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h);
  const ModelShape& shape = blueprint.shape;
  h.expect_flag({"", "attention_bias"}, false);
  h.expect_number({"", "full_attn_mod"}, 1);
  h.expect_number({"", "interpolate_factor"}, 1);
  const uint64_t heads = uint64_t{shape.q_heads} + 2 * uint64_t{shape.kv_heads};
  blueprint.attention_in = {{{"attn_qkv", "self_attn.qkv_proj"}, heads * shape.head_dim, shape.embedding}};
  blueprint.feed_forward_in = {{{"ffn_up", "mlp.gate_up_proj"}, 2 * uint64_t{shape.feed_forward}, shape.embedding}};
  read_windows(h, blueprint, h.integer(kWindow, 0, 1 << 24, 0), 0);
  return blueprint;
}

}  // namespace headwater::model::phi3
