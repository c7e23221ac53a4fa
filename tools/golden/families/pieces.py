"""What the families share, in numpy and float64, written from the public descriptions and from nothing of the engine.

Rotation turns element i of a head together with element i + dims / 2 ("halves"), as checkpoints of Hugging Face are laid out.
Sources: RoPE arXiv 2104.09864; YaRN 2309.00071; LongRoPE 2402.13753; Llama 3 2407.21783 and its config.json; RMSNorm
1910.07467; soft caps: Gemma 2, 2408.00118; sinks and the clamped SwiGLU: the model card of gpt-oss, 2508.10925.
"""

import math

import numpy as np


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def soft_cap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def llama3_factors(wavelengths, scaling):
    """What Llama 3.1 divides each frequency by: long waves by `factor`, short ones by 1, between them blended."""
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    turns = scaling["original_max_position_embeddings"] / wavelengths  # within the original context
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def yarn_factors(base, dims, scaling):
    """Frequencies that turn more than beta_fast times in the original context stay, those below beta_slow are interpolated."""
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]

    def dimension_of(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension_of(scaling.get("beta_fast", 32)), dimension_of(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    return 1 / (ramp / factor + (1 - ramp))


def rope_tables(config, dims, length, base, scaling):
    """cos, sin: [length, dims / 2]."""
    frequencies = base ** (-np.arange(0, dims, 2) / dims)
    magnitude = 1.0
    kind = (scaling or {}).get("rope_type", "default")
    if kind == "linear":
        frequencies = frequencies / scaling["factor"]
    elif kind == "llama3":
        frequencies = frequencies / llama3_factors(2 * math.pi / frequencies, scaling)
    elif kind == "yarn":
        frequencies = frequencies / yarn_factors(base, dims, scaling)
        magnitude = scaling.get("attention_factor", 0.1 * math.log(scaling["factor"]) + 1)
    elif kind == "longrope":
        original = config["original_max_position_embeddings"]
        frequencies = frequencies / np.array(scaling["long_factor" if length > original else "short_factor"])
        magnitude = math.sqrt(1 + math.log(config["max_position_embeddings"] / original) / math.log(original))
    else:
        assert kind == "default", kind
    angles = np.arange(length)[:, None] * frequencies
    return np.cos(angles) * magnitude, np.sin(angles) * magnitude


def rotate_halves(x, cos, sin):
    """x: [tokens, heads, head_dim], of which the first 2 * cos.shape[1] elements turn."""
    half = cos.shape[1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def attend(q, k, v, scale, window=0, cap=0, sinks=None):
    """q: [tokens, heads, dim], k and v: [tokens, kv heads, dim]; causal; a window counts the token itself."""
    tokens, heads, _ = q.shape
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    out = np.empty((tokens, heads, v.shape[2]))
    for head in range(heads):
        kv = head // (heads // k.shape[1])
        scores = soft_cap(scale * q[:, head] @ k[:, kv].T, cap)
        scores[hidden] = -np.inf
        if sinks is not None:  # one more logit that takes weight and gives nothing
            scores = np.concatenate([scores, np.full((tokens, 1), sinks[head])], axis=1)
        out[:, head] = softmax(scores)[:, :tokens] @ v[:, kv]
    return out.reshape(tokens, -1)


def route(logits, used):
    """The `used` largest of each row: their indices, falling."""
    return np.argsort(-logits, axis=-1, kind="stable")[:, :used]
