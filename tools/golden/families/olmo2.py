"""OLMo 2: norms behind the blocks instead of before them; q and k normalised over all heads of a token. arXiv 2501.00656."""

from families.llama import Llama, config


class Olmo2(Llama):
    architecture = "olmo2"
    pairs_in_gguf = False
    gguf_names = Llama.gguf_names | {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    }

    def declare_layer(self, p):
        self.declare_norm(p + "post_attention_layernorm.weight", self.d)
        self.declare_norm(p + "post_feedforward_layernorm.weight", self.d)
        self.declare_norm(p + "self_attn.q_norm.weight", self.heads * self.head_dim)
        self.declare_norm(p + "self_attn.k_norm.weight", self.kv_heads * self.head_dim)
        self.declare_attention(p + "self_attn.")
        self.declare_mlp(p + "mlp.")

    def block(self, layer, x):
        p = f"model.layers.{layer}."
        x = x + self.norm(self.attention(layer, x), p + "post_attention_layernorm.weight")
        return x + self.norm(self.mlp(p + "mlp.", x), p + "post_feedforward_layernorm.weight")

    def before_rotation(self, p, q, k):
        def over_all_heads(x, name):
            return self.norm(x.reshape(len(x), -1), p + name).reshape(x.shape)

        return over_all_heads(q, "q_norm.weight"), over_all_heads(k, "k_norm.weight")


NAMES = {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "rope_scaling": None}
SIZES = {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 8, "rope_theta": 500000.0}
CASES = {"norms_behind": (Olmo2, config(**NAMES, **SIZES))}
