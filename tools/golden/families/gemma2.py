"""Gemma 2: norms around each block, soft caps, a window in every other layer, GeGLU, scaled embeddings. arXiv 2408.00118.

A norm multiplies by 1 + weight; llama.cpp's converter adds the 1 once and for all.
"""

import math

from families.llama import Llama, config
from families.pieces import gelu_tanh, rms_norm, soft_cap


class Gemma2(Llama):
    architecture = "gemma2"
    pairs_in_gguf = False
    norm_center = 0.0
    gguf_names = Llama.gguf_names | {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }

    def declare_layer(self, p):
        super().declare_layer(p)
        self.declare_norm(p + "pre_feedforward_layernorm.weight", self.d)
        self.declare_norm(p + "post_feedforward_layernorm.weight", self.d)

    def norm(self, x, name):
        return rms_norm(x, 1 + self.weights[name], self.config["rms_norm_eps"])

    def embed(self, tokens):
        return super().embed(tokens) * math.sqrt(self.d)

    def head(self, x):
        return soft_cap(super().head(x), self.config.get("final_logit_softcapping"))

    def block(self, layer, x):
        p = f"model.layers.{layer}."
        y = self.attention(layer, self.norm(x, p + "input_layernorm.weight"))
        x = x + self.norm(y, p + "post_attention_layernorm.weight")
        y = self.mlp(p + "mlp.", self.norm(x, p + "pre_feedforward_layernorm.weight"))
        return x + self.norm(y, p + "post_feedforward_layernorm.weight")

    def scale(self):
        return self.config["query_pre_attn_scalar"] ** -0.5

    def window(self, layer):
        return self.config["sliding_window"] if layer % 2 == 0 else 0

    def variant(self, p):
        return {"cap": self.config.get("attn_logit_softcapping")}

    def mlp(self, p, x):
        return self.linear(gelu_tanh(self.linear(x, p + "gate_proj")) * self.linear(x, p + "up_proj"), p + "down_proj")

    def gguf_metadata(self):
        values = super().gguf_metadata()
        for name, key in (("attn", "attn_logit_softcapping"), ("final", "final_logit_softcapping")):
            if self.config.get(key):
                values[name + "_logit_softcapping"] = self.config[key]
        return values


NAMES = {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh"}
CAPS = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 256, "sliding_window": 20}
SIZES = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 256, "num_hidden_layers": 3, "rms_norm_eps": 0.01}
CASES = {
    "head_256": (
        Gemma2,
        config(**NAMES, **CAPS, **SIZES, hidden_act="gelu_pytorch_tanh", attention_bias=False, tie_word_embeddings=True),
    )
}
