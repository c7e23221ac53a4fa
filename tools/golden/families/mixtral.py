"""Mixtral: Mistral with experts; their weights are the softmax of the chosen logits. arXiv 2401.04088."""

import numpy as np

from families.llama import Llama, config
from families.pieces import route, silu, softmax


class Mixtral(Llama):
    gguf_names = Llama.gguf_names | {"block_sparse_moe.gate": "ffn_gate_inp"}
    expert_names = {"w1": "gate", "w2": "down", "w3": "up"}

    def declare_mlp(self, p):
        p = p.removesuffix("mlp.") + "block_sparse_moe."
        n = self.config["intermediate_size"]
        self.declare_matrix(p + "gate.weight", self.config["num_local_experts"], self.d)
        for expert in range(self.config["num_local_experts"]):
            self.declare_matrix(f"{p}experts.{expert}.w1.weight", n, self.d)
            self.declare_matrix(f"{p}experts.{expert}.w2.weight", self.d, n)
            self.declare_matrix(f"{p}experts.{expert}.w3.weight", n, self.d)

    def mlp(self, p, x):
        p = p.removesuffix("mlp.") + "block_sparse_moe."
        logits = self.linear(x, p + "gate")
        chosen = route(logits, self.config["num_experts_per_tok"])
        out = np.zeros_like(x)
        for t in range(len(x)):
            for expert, weight in zip(chosen[t], softmax(logits[t, chosen[t]])):
                e = f"{p}experts.{expert}."
                out[t] += weight * self.linear(silu(self.linear(x[t], e + "w1")) * self.linear(x[t], e + "w3"), e + "w2")
        return out

    def gguf_metadata(self):
        c = self.config
        return super().gguf_metadata() | {
            "expert_count": c["num_local_experts"],
            "expert_used_count": c["num_experts_per_tok"],
        }

    def gguf_extra_tensors(self):
        return [
            {
                "name": f"blk.{layer}.ffn_{kind}_exps.weight",
                "from": [
                    f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{name}.weight"
                    for expert in range(self.config["num_local_experts"])
                ],
            }
            for layer in range(self.layers)
            for name, kind in self.expert_names.items()
        ]


NAMES = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "sliding_window": None}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02, "output_router_logits": False}
CASES = {"four_experts": (Mixtral, config(**NAMES, **EXPERTS, intermediate_size=64))}
