#!/usr/bin/env python3
"""Writes a GGUF model of a real shape with random weights, to measure speed at sizes and types that cannot be fetched.

    python3 -m venv .venv && .venv/bin/pip install gguf
    .venv/bin/python tools/make_random_model.py --type q8_0 build/random-1b.q8_0.gguf

The tokenizer and the chat template are the default model's (49,152 tokens); its texts mean nothing. The default shape is
that of Llama 3.2 1B but for the vocabulary: 16 layers, width 2,048, 32/8 heads x 64, feed-forward 8,192.
"""
import argparse
import pathlib

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TYPES = {name.lower(): gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")}


def random_tensor(random, rows, columns, kind):
    """Rows of the type's blocks: random bytes, with scales that give values of a deviation near 1 / sqrt(columns)."""
    deviation = columns**-0.5
    if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16):
        values = random.standard_normal((rows, columns), dtype=np.float32) * np.float32(deviation)
        if kind == gguf.GGMLQuantizationType.BF16:
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values if kind == gguf.GGMLQuantizationType.F32 else values.astype(np.float16)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rows * columns // elements
    data = random.integers(0, 256, (blocks, size), dtype=np.uint8)
    levels = 74.0 if kind == gguf.GGMLQuantizationType.Q8_0 else 4.6  # the deviation of uniform levels
    step = deviation / levels
    data[:, :2] = np.frombuffer(np.float16(step).tobytes(), np.uint8)
    if kind == gguf.GGMLQuantizationType.Q4_1:
        data[:, 2:4] = np.frombuffer(np.float16(-7.5 * step).tobytes(), np.uint8)
    return data.reshape(rows, -1)


def copy_tokenizer(reader, writer):
    for field in reader.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--type", choices=TYPES, default="q8_0")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--feed-forward", type=int, default=8192)
    parser.add_argument("--context", type=int, default=8192)
    args = parser.parse_args()

    kind = TYPES[args.type]
    reader = gguf.GGUFReader(DEFAULT_MODEL)
    vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
    head_dim = args.width // args.heads
    writer = gguf.GGUFWriter(args.output, "llama")
    writer.add_name(f"random {args.layers} x {args.width} {args.type}")
    writer.add_block_count(args.layers)
    writer.add_context_length(args.context)
    writer.add_embedding_length(args.width)
    writer.add_feed_forward_length(args.feed_forward)
    writer.add_head_count(args.heads)
    writer.add_head_count_kv(args.kv_heads)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    copy_tokenizer(reader, writer)

    random = np.random.default_rng(1)

    def matrix(name, rows, columns):
        data = random_tensor(random, rows, columns, kind)
        plain = kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
        writer.add_tensor(name, data, raw_dtype=None if plain else kind)

    def norm(name):
        writer.add_tensor(name, np.ones(args.width, np.float32))

    matrix("token_embd.weight", vocabulary, args.width)
    norm("output_norm.weight")
    kv = args.kv_heads * head_dim
    for layer in range(args.layers):
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm.weight")
        matrix(prefix + "attn_q.weight", args.width, args.width)
        matrix(prefix + "attn_k.weight", kv, args.width)
        matrix(prefix + "attn_v.weight", kv, args.width)
        matrix(prefix + "attn_output.weight", args.width, args.width)
        norm(prefix + "ffn_norm.weight")
        matrix(prefix + "ffn_gate.weight", args.feed_forward, args.width)
        matrix(prefix + "ffn_up.weight", args.feed_forward, args.width)
        matrix(prefix + "ffn_down.weight", args.width, args.feed_forward)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    main()
