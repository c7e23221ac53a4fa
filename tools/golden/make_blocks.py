#!/usr/bin/env python3
"""Writes tests/golden/dequantised.bin and quantised.bin: quantised blocks and the floats of the Python package `gguf`.

dequantised.bin: blocks of random bytes, their scales drawn over f16's whole finite range (subnormal, zero and largest
included), and what gguf.quants.dequantize gives. quantised.bin: values of several ranges, and what
gguf.quants.quantize gives for the types that Headwater writes.

A record is: u8 length and bytes of the type's name; u32 count of elements, u32 count of bytes; the bytes; f32 elements.
Made with gguf 0.19.0, numpy 2.4.6. The same versions give the same files. --blocks makes larger ones.
"""

import argparse
import pathlib
import struct

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Where a block has its f16 scales.
SCALES = {
    "F32": [], "F16": [0], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "MXFP4": [],
}  # fmt: skip
EXTREMES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]


def random_blocks(name, count, random):
    size = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
    for which, offset in enumerate(SCALES[name]):
        for index in range(count):
            bits = int(random.integers(0, 0x7C00)) | int(random.integers(0, 2)) << 15
            if index % 3 == which:
                bits = EXTREMES[index // 3 % len(EXTREMES)]
            blocks[index, offset : offset + 2] = numpy.frombuffer(struct.pack("<H", bits), numpy.uint8)
    if name in ("F32", "BF16"):  # finite values
        blocks[:, -1] &= 0x7E
    if name == "MXFP4":
        blocks[: min(count, 3), 0] = [0, 1, 254][: min(count, 3)]
        blocks[:, 0] = numpy.minimum(blocks[:, 0], 254)
    return blocks


def random_values(count, random):
    values = random.standard_normal((count, 32)).astype(numpy.float32)
    scales = numpy.array([1, 0.02, 1e-4, 1e-7, 300, 6e4, 1e-30, 0], dtype=numpy.float32)
    values *= scales[numpy.arange(count) % len(scales), None]
    values[1::3] = numpy.round(values[1::3] * 8) / 8  # ties and equal values
    values[2::5] = numpy.abs(values[2::5])
    return numpy.clip(values, -65504, 65504) + 0.0  # zeros of one sign: of two, numpy's minimum is either


def record(name, data, values):
    data, values = data.tobytes(), values.astype("<f4")
    return struct.pack(f"<B{len(name)}sII", len(name), name.encode(), values.size, len(data)) + data + values.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden")
    options = parser.parse_args()
    random = numpy.random.default_rng(7)
    with open(options.out / "dequantised.bin", "wb") as out:
        for name in SCALES:
            plain = GGML_QUANT_SIZES[GGMLQuantizationType[name]][0] == 1
            blocks = random_blocks(name, options.blocks * (8 if plain else 1), random)
            out.write(record(name, blocks, dequantize(blocks.reshape(1, -1), GGMLQuantizationType[name])))
    with open(options.out / "quantised.bin", "wb") as out:
        for name in ("Q8_0", "Q4_0", "Q4_1", "BF16"):
            values = random_values(options.blocks * 4, random).reshape(1, -1)
            out.write(record(name, quantize(values, GGMLQuantizationType[name]), values))


if __name__ == "__main__":
    main()
