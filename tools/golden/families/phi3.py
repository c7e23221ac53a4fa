"""Phi 3 and 4: q, k, v in one matrix, gate and up in another; LongRoPE; part of a head may stay unrotated. arXiv 2404.14219."""

import math

import numpy as np

from families.llama import Llama, config
from families.pieces import silu


class Phi3(Llama):
    architecture = "phi3"
    pairs_in_gguf = False
    gguf_names = {
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.o_proj": "attn_output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }

    def declare_attention(self, p):
        self.declare_matrix(p + "qkv_proj.weight", (self.heads + 2 * self.kv_heads) * self.head_dim, self.d)
        self.declare_matrix(p + "o_proj.weight", self.d, self.heads * self.head_dim)

    def declare_mlp(self, p):
        self.declare_matrix(p + "gate_up_proj.weight", 2 * self.config["intermediate_size"], self.d)
        self.declare_matrix(p + "down_proj.weight", self.d, self.config["intermediate_size"])

    def project(self, p, x):
        q, k = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return np.split(self.linear(x, p + "qkv_proj"), [q, q + k], axis=1)

    def mlp(self, p, x):
        gate, up = np.split(self.linear(x, p + "gate_up_proj"), 2, axis=1)
        return self.linear(silu(gate) * up, p + "down_proj")

    def gguf_metadata(self):
        c = self.config
        original = c["original_max_position_embeddings"]
        values = super().gguf_metadata() | {
            "rope.dimension_count": self.rope_dims,
            "rope.scaling.original_context_length": original,
            "attention.sliding_window": c.get("sliding_window") or 0,
        }
        if c.get("rope_scaling"):
            factor = math.sqrt(1 + math.log(c["max_position_embeddings"] / original) / math.log(original))
            values["rope.scaling.attn_factor"] = factor
        return values

    def gguf_extra_tensors(self):
        scaling = self.config.get("rope_scaling") or {}
        return [
            {"name": f"rope_factors_{kind}.weight", "values": scaling[f"{kind}_factor"]}
            for kind in ("long", "short")
            if f"{kind}_factor" in scaling
        ]


def longrope(dims):
    steps = np.arange(dims // 2)
    return {
        "type": "longrope",
        "rope_type": "longrope",
        "short_factor": [round(float(f), 3) for f in 1 + 0.05 * steps],
        "long_factor": [round(float(f), 3) for f in 1.5 + 0.9 * steps],
    }


NAMES = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "attention_bias": False, "embd_pdrop": 0.0}
CASES = {  # the test serves contexts of 64 tokens: beyond the original one, and within it
    "longrope_long": (
        Phi3,
        config(
            **NAMES,
            hidden_size=96,
            num_attention_heads=3,
            num_key_value_heads=3,
            original_max_position_embeddings=32,
            rope_scaling=longrope(32),
            sliding_window=262144,
            max_position_embeddings=256,
        ),
    ),
    "longrope_short": (
        Phi3,
        config(
            **NAMES,
            original_max_position_embeddings=64,
            rope_scaling=longrope(12),
            partial_rotary_factor=0.75,
            sliding_window=None,
            tie_word_embeddings=True,
        ),
    ),
    "window": (Phi3, config(**NAMES, original_max_position_embeddings=128, sliding_window=40, rope_scaling=None)),
}
