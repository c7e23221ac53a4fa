"""Qwen 3 with experts: a softmax over all router logits, the chosen ones rescaled to sum 1. arXiv 2505.09388."""

import numpy as np

from families.llama import config
from families.pieces import route, silu, softmax
from families.qwen3 import Qwen3


class Qwen3Moe(Qwen3):
    architecture = "qwen3moe"
    gguf_names = Qwen3.gguf_names | {"mlp.gate": "ffn_gate_inp"}

    def declare_mlp(self, p):
        n = self.config["moe_intermediate_size"]
        self.declare_matrix(p + "gate.weight", self.config["num_experts"], self.d)
        for expert in range(self.config["num_experts"]):
            self.declare_matrix(f"{p}experts.{expert}.gate_proj.weight", n, self.d)
            self.declare_matrix(f"{p}experts.{expert}.up_proj.weight", n, self.d)
            self.declare_matrix(f"{p}experts.{expert}.down_proj.weight", self.d, n)

    def mlp(self, p, x):
        shares = softmax(self.linear(x, p + "gate"))
        chosen = route(shares, self.config["num_experts_per_tok"])
        out = np.zeros_like(x)
        for t in range(len(x)):
            weights = shares[t, chosen[t]]
            if self.config["norm_topk_prob"]:
                weights = weights / weights.sum()
            for expert, weight in zip(chosen[t], weights):
                e = f"{p}experts.{expert}."
                h = silu(self.linear(x[t], e + "gate_proj")) * self.linear(x[t], e + "up_proj")
                out[t] += weight * self.linear(h, e + "down_proj")
        return out

    def gguf_metadata(self):
        c = self.config
        return super().gguf_metadata() | {
            "expert_count": c["num_experts"],
            "expert_used_count": c["num_experts_per_tok"],
            "expert_feed_forward_length": c["moe_intermediate_size"],
        }

    def gguf_extra_tensors(self):
        return [
            {
                "name": f"blk.{layer}.ffn_{kind}_exps.weight",
                "from": [
                    f"model.layers.{layer}.mlp.experts.{expert}.{kind}_proj.weight"
                    for expert in range(self.config["num_experts"])
                ],
            }
            for layer in range(self.layers)
            for kind in ("gate", "up", "down")
        ]


NAMES = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}
DENSE = {"decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False, "sliding_window": None}
CASES = {"eight_experts": (Qwen3Moe, config(**NAMES, **EXPERTS, **DENSE, head_dim=32, rope_theta=1000000.0))}
