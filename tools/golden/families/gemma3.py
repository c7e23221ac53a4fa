"""Gemma 3: Gemma 2 without caps on scores, with norms on q and k; local layers have a window and a RoPE base of their own,
global ones a linearly scaled RoPE. arXiv 2503.19786."""

from families.gemma2 import Gemma2
from families.head_norms import HeadNorms
from families.llama import config
from families.pieces import rope_tables


class Gemma3(HeadNorms, Gemma2):
    architecture = "gemma3"
    gguf_names = Gemma2.gguf_names | HeadNorms.head_norm_names

    def is_local(self, layer):
        return (layer + 1) % self.config["sliding_window_pattern"] != 0

    def window(self, layer):
        return self.config["sliding_window"] if self.is_local(layer) else 0

    def rope(self, layer, length):
        c = self.config
        if self.is_local(layer):
            return rope_tables(c, self.rope_dims, length, c["rope_local_base_freq"], None)
        return super().rope(layer, length)

    def gguf_metadata(self):
        return super().gguf_metadata() | {"rope.freq_base_swa": self.config["rope_local_base_freq"]}


NAMES = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh"}
LAYERS = {"num_hidden_layers": 7, "sliding_window": 12, "sliding_window_pattern": 6, "query_pre_attn_scalar": 32}
ROPE = {"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32}
NONE = {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": False}
values = config(**NAMES, **LAYERS, **ROPE, **SIZES, **NONE, rms_norm_eps=0.01, tie_word_embeddings=True)
values.pop("hidden_act")
CASES = {"local_and_global": (Gemma3, values)}
