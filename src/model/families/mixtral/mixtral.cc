#include "model/families/mixtral/mixtral.h"

namespace headwater::model::mixtral {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h, {.pairs_in_gguf = true});
  const ModelShape& shape = blueprint.shape;
  ExpertPlan experts;
  experts.count = h.integer({"expert_count", "num_local_experts"}, 1, 1024);
  experts.used = h.integer({"expert_used_count", "num_experts_per_tok"}, 1, experts.count);
  experts.feed_forward = shape.feed_forward;
  experts.router = {{"ffn_gate_inp", "block_sparse_moe.gate"}, experts.count, shape.embedding};
  experts.gate.folder = "block_sparse_moe.experts.{}.w1";
  experts.up.folder = "block_sparse_moe.experts.{}.w3";
  experts.down.folder = "block_sparse_moe.experts.{}.w2";
  blueprint.experts = experts;
  read_windows(h, blueprint, h.integer(kWindow, 0, 1 << 24, 0), 0);
  return blueprint;
}

}  // namespace headwater::model::mixtral
