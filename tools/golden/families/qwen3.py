"""Qwen 3: each head of q and k is normalised before it is rotated; no biases. arXiv 2505.09388."""

from families.head_norms import HeadNorms
from families.llama import Llama, config


class Qwen3(HeadNorms, Llama):
    architecture = "qwen3"
    pairs_in_gguf = False
    gguf_names = Llama.gguf_names | HeadNorms.head_norm_names


NAMES = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "rms_norm_eps": 0.01}
SIZES = {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 128, "rope_theta": 1000000.0}
CASES = {"head_128": (Qwen3, config(**NAMES, **SIZES))}
