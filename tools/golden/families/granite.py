"""Granite 3: Llama with four multipliers. Model card and config.json of ibm-granite/granite-3.1-2b-instruct."""

from families.llama import Llama, config


class Granite(Llama):
    architecture = "granite"

    def embed(self, tokens):
        return super().embed(tokens) * self.config["embedding_multiplier"]

    def head(self, x):
        return super().head(x) / self.config["logits_scaling"]

    def scale(self):
        return self.config["attention_multiplier"]

    def block(self, layer, x):
        p = f"model.layers.{layer}."
        m = self.config["residual_multiplier"]
        x = x + m * self.attention(layer, self.norm(x, p + "input_layernorm.weight"))
        return x + m * self.mlp(p + "mlp.", self.norm(x, p + "post_attention_layernorm.weight"))

    def gguf_metadata(self):
        c = self.config
        return super().gguf_metadata() | {
            "attention.scale": c["attention_multiplier"],
            "embedding_scale": c["embedding_multiplier"],
            "residual_scale": c["residual_multiplier"],
            "logit_scale": c["logits_scaling"],
        }


NAMES = {"model_type": "granite", "architectures": ["GraniteForCausalLM"], "attention_bias": False, "mlp_bias": False}
SCALES = {"embedding_multiplier": 3.0, "logits_scaling": 8.0, "attention_multiplier": 0.4, "residual_multiplier": 0.22}
SIZES = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": True}
CASES = {"multipliers": (Granite, config(**NAMES, **SCALES, **SIZES))}
