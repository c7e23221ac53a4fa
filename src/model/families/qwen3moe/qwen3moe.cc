#include "model/families/qwen3moe/qwen3moe.h"

#include "model/families/qwen3/qwen3.h"

namespace headwater::model::qwen3moe {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = qwen3::read(h);
  ExpertPlan experts;
  experts.count = h.integer({"expert_count", "num_experts"}, 1, 1024);
  experts.used = h.integer({"expert_used_count", "num_experts_per_tok"}, 1, experts.count);
  experts.feed_forward = h.integer({"expert_feed_forward_length", "moe_intermediate_size"}, 1, 1 << 20);
  experts.router = {{"ffn_gate_inp", "mlp.gate"}, experts.count, blueprint.shape.embedding};
  experts.renormalize = h.flag({"", "norm_topk_prob"}, h.is_gguf());  // GGUF holds only models that do
  h.expect_number({"", "decoder_sparse_step"}, 1);
  blueprint.experts = experts;
  return blueprint;
}

}  // namespace headwater::model::qwen3moe
