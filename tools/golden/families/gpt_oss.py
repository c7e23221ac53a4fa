"""gpt-oss: attention sinks, a window in every other layer, biases everywhere, experts in MXFP4 with a clamped SwiGLU, YaRN
without rounding of its bounds. arXiv 2508.10925 (model card) and config.json of openai/gpt-oss-20b.

MXFP4 (OCP Microscaling Formats 1.0): 32 elements share a scale 2^(s - 127); a byte holds two elements, the first in its low
bits: a sign and 0, 0.5, 1, 1.5, 2, 3, 4, 6. Rows of gate_up_proj alternate between gate and up.
"""

import numpy as np

from families.llama import Llama, config
from families.pieces import route, softmax
from families.weights import Bytes, Numbers

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def from_mxfp4(blocks, scales):
    """blocks: [..., k / 32, 16], scales: [..., k / 32]; returns [..., k]."""
    pairs = np.stack([E2M1[blocks & 15], E2M1[blocks >> 4]], axis=-1)
    values = pairs.reshape(*scales.shape, 32) * 2.0 ** (scales.astype(int) - 127)[..., None]
    return values.reshape(*scales.shape[:-1], -1)


def clamped_swiglu(gate, up, limit):
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)


class GptOss(Llama):
    architecture = "gpt-oss"
    pairs_in_gguf = False
    gguf_names = Llama.gguf_names | {
        "post_attention_layernorm": "post_attention_norm",
        "mlp.router": "ffn_gate_inp",
    }

    def declare_attention(self, p):
        super().declare_attention(p)
        self.declare_bias(p + "q_proj.bias", self.heads * self.head_dim)
        self.declare_bias(p + "k_proj.bias", self.kv_heads * self.head_dim)
        self.declare_bias(p + "v_proj.bias", self.kv_heads * self.head_dim)
        self.declare_bias(p + "o_proj.bias", self.d)
        self.declare(p + "sinks", Numbers([self.heads], 1.0, 1.0))

    def declare_mlp(self, p):
        experts, n = self.config["num_local_experts"], self.config["intermediate_size"]
        self.declare_matrix(p + "router.weight", experts, self.d)
        self.declare_bias(p + "router.bias", experts)
        for name, rows, columns in (("gate_up_proj", 2 * n, self.d), ("down_proj", self.d, n)):
            self.declare(f"{p}experts.{name}_blocks", Bytes([experts, rows, columns // 32, 16], 0, 256))
            self.declare(f"{p}experts.{name}_scales", Bytes([experts, rows, columns // 32], 122, 5))
            self.declare(f"{p}experts.{name}_bias", Numbers([experts, rows], 0.0, 0.5))

    def window(self, layer):
        return self.config["sliding_window"] if layer % 2 == 0 else 0

    def variant(self, p):
        return {"sinks": self.weights[p + "sinks"]}

    def mlp(self, p, x):
        matrices = {
            name: from_mxfp4(self.weights[f"{p}experts.{name}_blocks"], self.weights[f"{p}experts.{name}_scales"])
            for name in ("gate_up_proj", "down_proj")
        }
        logits = self.linear(x, p + "router")
        chosen = route(logits, self.config["num_experts_per_tok"])
        out = np.zeros_like(x)
        for t in range(len(x)):
            for expert, weight in zip(chosen[t], softmax(logits[t, chosen[t]])):
                both = matrices["gate_up_proj"][expert] @ x[t] + self.weights[p + "experts.gate_up_proj_bias"][expert]
                h = clamped_swiglu(both[0::2], both[1::2], self.config["swiglu_limit"])
                out[t] += weight * (matrices["down_proj"][expert] @ h + self.weights[p + "experts.down_proj_bias"][expert])
        return out

    def gguf_metadata(self):
        c = self.config
        return super().gguf_metadata() | {
            "expert_count": c["num_local_experts"],
            "expert_used_count": c["num_experts_per_tok"],
            "expert_feed_forward_length": c["intermediate_size"],
        }

    def gguf_extra_tensors(self):
        tensors = []
        for layer in range(self.layers):
            p = f"model.layers.{layer}."
            tensors.append({"name": f"blk.{layer}.attn_sinks.weight", "from": [p + "self_attn.sinks"]})
            for kind, source, rows in (("gate", "gate_up_proj", (0, 2)), ("up", "gate_up_proj", (1, 2)), ("down", "down_proj", (0, 1))):
                e = f"{p}mlp.experts.{source}_"
                name = f"blk.{layer}.ffn_{kind}_exps."
                tensors.append({"name": name + "weight", "mxfp4": [e + "blocks", e + "scales"], "rows": rows})
                tensors.append({"name": name + "bias", "from": [e + "bias"], "rows": rows})
        return tensors


NAMES = {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "attention_bias": True}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_per_token": 2, "swiglu_limit": 7.0}
ATTENTION = {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 16, "rope_theta": 150000.0}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 256,
}
CASES = {
    "sinks_and_experts": (
        GptOss,
        config(
            **NAMES,
            **EXPERTS,
            **ATTENTION,
            intermediate_size=32,
            layer_types=["sliding_attention", "full_attention"],
            initial_context_length=256,
            rope_scaling=YARN,
            quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        ),
    )
}
