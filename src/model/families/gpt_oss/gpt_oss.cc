#include "model/families/gpt_oss/gpt_oss.h"

#include "model/families/gpt_oss/mxfp4_experts.h"

namespace headwater::model::gpt_oss {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h, {.head_dim = 64, .yarn_truncate = false});
  const ModelShape& shape = blueprint.shape;
  h.expect_flag({"", "attention_bias"}, true);
  blueprint.separate_projections(/*attention_bias=*/true);
  blueprint.attention_out.bias = true;
  blueprint.sinks = {"attn_sinks", "self_attn.sinks"};
  blueprint.feed_forward_norm = {"post_attention_norm", "post_attention_layernorm"};
  blueprint.activation = ops::Activation::kSwigluClamped;
  h.expect_number({"", "swiglu_limit"}, 7);

  ExpertPlan experts;
  experts.count = h.integer({"expert_count", "num_local_experts"}, 1, 1024);
  experts.used = h.integer({"expert_used_count", "num_experts_per_tok"}, 1, experts.count);
  experts.feed_forward = h.integer({"expert_feed_forward_length", "intermediate_size"}, 1, 1 << 20);
  experts.router = {{"ffn_gate_inp", "mlp.router"}, experts.count, shape.embedding, /*bias=*/true};
  experts.dtype = DType::kMXFP4;
  experts.bias = true;
  blueprint.experts = experts;
  blueprint.folder_expert_slots = mxfp4_expert_slots;
  if (!h.is_gguf() && (shape.embedding % 32 != 0 || experts.feed_forward % 32 != 0)) {
    h.fail(error(ErrorCode::kCorrupt, "experts of {} by {} are no multiples of 32, the block of MXFP4", shape.embedding,
                 experts.feed_forward));
  }
  h.ignore({"", "experts_per_token"});
  h.ignore({"", "initial_context_length"});
  read_windows(h, blueprint, h.integer(kWindow, 1, 1 << 24), 2);
  return blueprint;
}

}  // namespace headwater::model::gpt_oss
