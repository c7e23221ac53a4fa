"""Qwen 2 and 2.5: a bias on q, k and v. arXiv 2407.10671."""

from families.llama import Llama, config


class Qwen2(Llama):
    architecture = "qwen2"
    pairs_in_gguf = False

    def declare_attention(self, p):
        super().declare_attention(p)
        self.declare_bias(p + "q_proj.bias", self.heads * self.head_dim)
        self.declare_bias(p + "k_proj.bias", self.kv_heads * self.head_dim)
        self.declare_bias(p + "v_proj.bias", self.kv_heads * self.head_dim)

    def window(self, layer):
        return 0  # use_sliding_window is false in every published configuration


NAMES = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "rms_norm_eps": 0.01, "rope_theta": 1000000.0}
SIZES = {"hidden_size": 160, "num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": True}
CASES = {"head_80": (Qwen2, config(**NAMES, **SIZES, use_sliding_window=False, sliding_window=32, max_window_layers=1))}
