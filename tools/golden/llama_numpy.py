"""An independent forward pass of the llama family in numpy, float64 throughout, over weights dequantised by `gguf`.

It shares no code and no numeric shortcut with the engine, so that agreement means something. The one thing they have in
common is the file: GGUF stores the q and k rows of the llama family in the order that suits rotation of adjacent pairs
(x[2i], x[2i+1]).
"""

import gguf
import numpy as np


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate_pairs(x, cos, sin):
    """x: [tokens, heads, dims]; cos, sin: [tokens, dims / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None, :], sin[:, None, :]
    out = np.empty_like(x)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def logsumexp(logits):
    top = logits.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)))[..., 0]


class Llama:
    def __init__(self, reader):
        def field(name):
            return reader.fields[f"llama.{name}"].contents()

        self.layers = field("block_count")
        self.heads = field("attention.head_count")
        self.kv_heads = field("attention.head_count_kv")
        self.head_dim = field("embedding_length") // self.heads
        self.epsilon = float(np.float32(field("attention.layer_norm_rms_epsilon")))
        rope_dims = field("rope.dimension_count")
        assert rope_dims == self.head_dim, "partial rotation is not written here"
        self.frequencies = float(field("rope.freq_base")) ** (-np.arange(0, rope_dims, 2) / rope_dims)
        self.weights = {
            tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64) for tensor in reader.tensors
        }
        self.embedding = self.weights["token_embd.weight"]
        self.output = self.weights.get("output.weight", self.embedding)

    def new_cache(self):
        empty = np.zeros((0, self.kv_heads, self.head_dim))
        return [(empty, empty) for _ in range(self.layers)]

    def forward(self, tokens, cache):
        """Appends `tokens` to the cache; returns the normalised residual stream [tokens, embedding]."""
        start = cache[0][0].shape[0]
        angles = np.arange(start, start + len(tokens))[:, None] * self.frequencies
        cos, sin = np.cos(angles), np.sin(angles)
        x = self.embedding[tokens]
        for layer in range(self.layers):
            x = x + self._attention(layer, x, cache, cos, sin)
            x = x + self._feed_forward(layer, x)
        return rms_norm(x, self.weights["output_norm.weight"], self.epsilon)

    def logits(self, hidden):
        return hidden @ self.output.T

    def _attention(self, layer, x, cache, cos, sin):
        def project(name, heads):
            return (h @ self.weights[f"blk.{layer}.attn_{name}.weight"].T).reshape(len(h), heads, self.head_dim)

        h = rms_norm(x, self.weights[f"blk.{layer}.attn_norm.weight"], self.epsilon)
        q = rotate_pairs(project("q", self.heads), cos, sin)
        k = np.concatenate([cache[layer][0], rotate_pairs(project("k", self.kv_heads), cos, sin)])
        v = np.concatenate([cache[layer][1], project("v", self.kv_heads)])
        cache[layer] = (k, v)

        start = len(k) - len(h)
        hidden_keys = np.arange(len(k))[None, :] > np.arange(start, len(k))[:, None]  # causal
        out = np.empty_like(q)
        group = self.heads // self.kv_heads
        for head in range(self.heads):
            scores = q[:, head] @ k[:, head // group].T / np.sqrt(self.head_dim)
            scores[hidden_keys] = -np.inf
            out[:, head] = softmax(scores) @ v[:, head // group]
        return out.reshape(len(h), -1) @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def _feed_forward(self, layer, x):
        h = rms_norm(x, self.weights[f"blk.{layer}.ffn_norm.weight"], self.epsilon)
        gate = h @ self.weights[f"blk.{layer}.ffn_gate.weight"].T
        up = h @ self.weights[f"blk.{layer}.ffn_up.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weights[f"blk.{layer}.ffn_down.weight"].T
