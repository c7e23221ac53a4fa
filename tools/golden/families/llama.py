"""Llama 2 and 3, SmolLM2, TinyLlama, Mistral: the decoder that the other families vary. arXiv 2307.09288, 2310.06825."""

import math

import numpy as np

from families.pieces import attend, llama3_factors, rms_norm, rope_tables, rotate_halves, silu
from families.weights import Numbers


class Llama:
    architecture = "llama"  # GGUF's
    pairs_in_gguf = True  # its converter stores q and k rows for the rotation of adjacent pairs
    norm_center = 1.0  # norm weights lie around it
    gguf_names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }

    def __init__(self, config):
        self.config = config
        self.d = config["hidden_size"]
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.head_dim = config.get("head_dim", self.d // self.heads)
        self.rope_dims = int(self.head_dim * config.get("partial_rotary_factor", 1))
        self.tied = config["tie_word_embeddings"]
        self.recipes = {}
        self.declare("model.embed_tokens.weight", Numbers([config["vocab_size"], self.d], 0.0, 1.5))
        self.declare_norm("model.norm.weight", self.d)
        if not self.tied:
            self.declare_matrix("lm_head.weight", config["vocab_size"], self.d)
        for layer in range(self.layers):
            self.declare_layer(f"model.layers.{layer}.")
        self.weights = {name: recipe.make(name) for name, recipe in self.recipes.items()}

    # What there is.

    def declare(self, name, recipe):
        self.recipes[name] = recipe

    def declare_matrix(self, name, rows, columns):
        self.declare(name, Numbers([rows, columns], 0.0, round(2.5 / math.sqrt(columns), 6)))

    def declare_bias(self, name, size):
        self.declare(name, Numbers([size], 0.0, 0.5))

    def declare_norm(self, name, size):
        self.declare(name, Numbers([size], self.norm_center, 0.25))

    def declare_layer(self, p):
        self.declare_norm(p + "input_layernorm.weight", self.d)
        self.declare_norm(p + "post_attention_layernorm.weight", self.d)
        self.declare_attention(p + "self_attn.")
        self.declare_mlp(p + "mlp.")

    def declare_attention(self, p):
        self.declare_matrix(p + "q_proj.weight", self.heads * self.head_dim, self.d)
        self.declare_matrix(p + "k_proj.weight", self.kv_heads * self.head_dim, self.d)
        self.declare_matrix(p + "v_proj.weight", self.kv_heads * self.head_dim, self.d)
        self.declare_matrix(p + "o_proj.weight", self.d, self.heads * self.head_dim)

    def declare_mlp(self, p):
        n = self.config["intermediate_size"]
        self.declare_matrix(p + "gate_proj.weight", n, self.d)
        self.declare_matrix(p + "up_proj.weight", n, self.d)
        self.declare_matrix(p + "down_proj.weight", self.d, n)

    # What it computes.

    def forward(self, tokens):
        """Logits of every position: [tokens, vocabulary]."""
        x = self.embed(tokens)
        for layer in range(self.layers):
            x = self.block(layer, x)
        return self.head(self.norm(x, "model.norm.weight"))

    def embed(self, tokens):
        return self.weights["model.embed_tokens.weight"][tokens]

    def head(self, x):
        return x @ self.weights["model.embed_tokens.weight" if self.tied else "lm_head.weight"].T

    def norm(self, x, name):
        return rms_norm(x, self.weights[name], self.config["rms_norm_eps"])

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def block(self, layer, x):
        p = f"model.layers.{layer}."
        x = x + self.attention(layer, self.norm(x, p + "input_layernorm.weight"))
        return x + self.mlp(p + "mlp.", self.norm(x, p + "post_attention_layernorm.weight"))

    def attention(self, layer, x):
        p = f"model.layers.{layer}.self_attn."
        q, k, v = (part.reshape(len(x), -1, self.head_dim) for part in self.project(p, x))
        q, k = self.before_rotation(p, q, k)
        cos, sin = self.rope(layer, len(x))
        q, k = rotate_halves(q, cos, sin), rotate_halves(k, cos, sin)
        return self.linear(attend(q, k, v, self.scale(), self.window(layer), **self.variant(p)), p + "o_proj")

    def project(self, p, x):
        return (self.linear(x, p + name) for name in ("q_proj", "k_proj", "v_proj"))

    def before_rotation(self, p, q, k):
        return q, k

    def rope(self, layer, length):
        c = self.config
        return rope_tables(c, self.rope_dims, length, c["rope_theta"], c.get("rope_scaling"))

    def scale(self):
        return 1 / math.sqrt(self.head_dim)

    def window(self, layer):
        return self.config.get("sliding_window") or 0

    def variant(self, p):
        return {}

    def mlp(self, p, x):
        return self.linear(silu(self.linear(x, p + "gate_proj")) * self.linear(x, p + "up_proj"), p + "down_proj")

    # The same model as llama.cpp's converter writes it into a GGUF file. Floats are f32, integers u32.

    def gguf_metadata(self):
        c = self.config
        values = {
            "block_count": self.layers,
            "context_length": c["max_position_embeddings"],
            "embedding_length": self.d,
            "feed_forward_length": c["intermediate_size"],
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
            "rope.freq_base": float(c["rope_theta"]),
        }
        if "head_dim" in c:
            values |= {"attention.key_length": self.head_dim, "attention.value_length": self.head_dim}
        if self.pairs_in_gguf:
            values |= {"vocab_size": c["vocab_size"], "rope.dimension_count": self.rope_dims}
        if c.get("sliding_window"):
            values["attention.sliding_window"] = c["sliding_window"]
        scaling = c.get("rope_scaling") or {}
        if scaling.get("rope_type") in ("linear", "yarn"):
            values |= {"rope.scaling.type": scaling["rope_type"], "rope.scaling.factor": float(scaling["factor"])}
        if scaling.get("rope_type") == "yarn":
            values["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
            for key in ("beta_fast", "beta_slow"):
                if key in scaling:
                    values["rope.scaling.yarn_" + key] = float(scaling[key])
        return values

    def gguf_extra_tensors(self):
        c = self.config
        scaling = c.get("rope_scaling") or {}
        if scaling.get("rope_type") != "llama3":
            return []
        wavelengths = 2 * math.pi * c["rope_theta"] ** (np.arange(0, self.rope_dims, 2) / self.rope_dims)
        return [{"name": "rope_freqs.weight", "values": [float(f"{f:.8g}") for f in llama3_factors(wavelengths, scaling)]}]

    def gguf_tensors(self):
        """Each tensor: its name, the checkpoint's tensors `from` which it is made (several: stacked), and how."""
        outer = {
            "model.embed_tokens.weight": "token_embd.weight",
            "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight",
        }
        tensors = self.gguf_extra_tensors()
        for name in self.recipes:
            if name in outer:
                entry = {"name": outer[name], "from": [name]}
            else:
                _, _, layer, rest = name.split(".", 3)
                stem, _, ending = rest.rpartition(".")
                if stem not in self.gguf_names:
                    continue  # belongs to gguf_extra_tensors()
                entry = {"name": f"blk.{layer}.{self.gguf_names[stem]}.{ending}", "from": [name]}
                if self.pairs_in_gguf and stem.endswith(("q_proj", "k_proj")):
                    entry["pairs_of_heads"] = self.heads if stem.endswith("q_proj") else self.kv_heads
            if "norm" in name and self.norm_center == 0:
                entry["add"] = 1.0
            tensors.append(entry)
        return tensors


def config(**changes):
    values = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 0.01,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 48,
        "torch_dtype": "float32",
        "use_cache": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return values | changes


def scaled(kind, **more):
    return {"rope_type": kind, "factor": 4.0, **more}


CASES = {
    "llama3": (
        Llama,
        config(
            num_attention_heads=8,
            num_key_value_heads=1,
            head_dim=32,
            rope_scaling=scaled("llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
        ),
    ),
    "linear": (Llama, config(num_key_value_heads=4, tie_word_embeddings=True, rope_scaling=scaled("linear"))),
    "yarn": (Llama, config(head_dim=48, rope_scaling=scaled("yarn", original_max_position_embeddings=256, beta_fast=16.0))),
    "mistral": (
        Llama,
        config(
            model_type="mistral",
            architectures=["MistralForCausalLM"],
            hidden_size=96,
            intermediate_size=64,
            num_attention_heads=6,
            sliding_window=24,
        ),
    ),
}
