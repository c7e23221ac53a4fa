"""GGUF files of a Llama's shape with random weights, for timing: 16 GB in the time it takes to write them.

Every matrix repeats one random block of a length that no row divides, so rows differ. No tokenizer (`no_vocab`).
"""

import dataclasses
import os
import random
import struct

ALIGNMENT = 32
BLOCK_BYTES = 1 << 24
U32, F32, STRING = 4, 6, 8  # types of a GGUF value


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    positions: int
    rope_theta: float
    tied: bool  # the output product reads the input table


@dataclasses.dataclass(frozen=True)
class Coding:
    """Blocks of `weights` weights, whose bytes are random where `kept` has bits and `fixed` elsewhere."""
    type: int  # of a GGUF tensor
    file_type: int  # of a GGUF file, general.file_type
    weights: int
    kept: bytes
    fixed: bytes


LLAMA_8B = Shape(32, 4096, 14336, 32, 8, 128256, 131072, 5e5, tied=False)
SMOLLM2_135M = Shape(30, 576, 1536, 9, 3, 49152, 8192, 1e5, tied=True)
# Both keep |weight| below 2^-5, so no activation overflows. BF16: sign, mantissa, two low bits of the exponent.
BF16 = Coding(30, 32, 1, b"\xff\x81", b"\x00\x3a")
# A float16 scale of 2^-12 to 2^-11, then 32 signed bytes.
Q8_0 = Coding(8, 7, 32, b"\xff\x03" + b"\xff" * 32, b"\x00\x0c" + b"\x00" * 32)
ONES = Coding(0, 0, 1, b"\x00" * 4, struct.pack("<f", 1))  # F32, of norms


def random_block(coding):
    """Whole blocks of a coding, almost BLOCK_BYTES of them."""
    count = BLOCK_BYTES // len(coding.kept) - 1
    bits = int.from_bytes(random.Random(1).randbytes(count * len(coding.kept)), "little")
    kept, fixed = (int.from_bytes(pattern * count, "little") for pattern in (coding.kept, coding.fixed))
    return (bits & kept | fixed).to_bytes(count * len(coding.kept), "little")


def tensors(shape, coding):
    """Name, columns, rows and coding of every tensor; a norm has one row."""
    kv = shape.hidden // shape.heads * shape.kv_heads
    yield "token_embd.weight", shape.hidden, shape.vocabulary, coding
    yield "output_norm.weight", shape.hidden, 1, ONES
    if not shape.tied:
        yield "output.weight", shape.hidden, shape.vocabulary, coding
    for layer in range(shape.layers):
        for name, columns, rows in (
                ("attn_q", shape.hidden, shape.hidden), ("attn_k", shape.hidden, kv), ("attn_v", shape.hidden, kv),
                ("attn_output", shape.hidden, shape.hidden), ("ffn_gate", shape.hidden, shape.intermediate),
                ("ffn_up", shape.hidden, shape.intermediate), ("ffn_down", shape.intermediate, shape.hidden)):
            yield f"blk.{layer}.{name}.weight", columns, rows, coding
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", shape.hidden, 1, ONES


def metadata(shape, coding):
    llama = {"block_count": shape.layers, "embedding_length": shape.hidden, "feed_forward_length": shape.intermediate,
             "attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads,
             "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": shape.hidden // shape.heads,
             "rope.freq_base": shape.rope_theta, "context_length": shape.positions, "vocab_size": shape.vocabulary}
    return {"general.architecture": "llama", "general.file_type": coding.file_type, "general.alignment": ALIGNMENT,
            "tokenizer.ggml.model": "no_vocab"} | {f"llama.{name}": value for name, value in llama.items()}


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def value(thing):
    if isinstance(thing, str):
        return struct.pack("<I", STRING) + string(thing)
    return struct.pack("<If", F32, thing) if isinstance(thing, float) else struct.pack("<II", U32, thing)


def padding(size):
    return -size % ALIGNMENT


def bytes_of(columns, rows, coding):
    return columns * rows // coding.weights * len(coding.kept)


def header(shape, coding):
    pairs, described, offset = metadata(shape, coding), [], 0
    for name, columns, rows, tensor_coding in tensors(shape, coding):
        sizes = (columns,) if rows == 1 else (columns, rows)
        place = struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor_coding.type, offset)
        described.append(string(name) + place)
        size = bytes_of(columns, rows, tensor_coding)
        offset += size + padding(size)
    text = b"GGUF" + struct.pack("<IQQ", 3, len(described), len(pairs)) + b"".join(
        [string(key) + value(thing) for key, thing in pairs.items()] + described)
    return text + bytes(padding(len(text))), offset


def write(path, shape, coding):
    """Writes the file, or leaves it where one of its size is there."""
    start, data_bytes = header(shape, coding)
    if path.exists() and path.stat().st_size == len(start) + data_bytes:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = {each: memoryview(random_block(each)) for each in (coding, ONES)}
    unfinished = path.with_suffix(".unfinished")
    with open(unfinished, "wb") as file:
        file.write(start)
        for _, columns, rows, tensor_coding in tensors(shape, coding):
            size, block = bytes_of(columns, rows, tensor_coding), blocks[tensor_coding]
            for begin in range(0, size, len(block)):
                file.write(block[:size - begin])
            file.write(bytes(padding(size)))
    os.replace(unfinished, path)
