#include "model/families/qwen3/qwen3.h"

#include "model/families/qwen2/qwen2.h"

namespace headwater::model::qwen3 {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h, {.head_dim = 128});
  h.expect_flag({"", "attention_bias"}, false);
  blueprint.q_norm = {"attn_q_norm", "self_attn.q_norm"};
  blueprint.k_norm = {"attn_k_norm", "self_attn.k_norm"};
  qwen2::read_qwen_windows(h, blueprint);
  return blueprint;
}

}  // namespace headwater::model::qwen3
