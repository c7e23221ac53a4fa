"""Weights that two programs make from the same few numbers: nothing of them is stored in a golden file.

Element i of the tensor `name` comes from the word splitmix64(fnv1a64(name) + i): its upper 24 bits as a number x of [-1, 1),
then center + spread * x in float32; or, for bytes, low + (word >> 40) % span. tests/golden/family_weights.h does the same.
Sources: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014; the FNV hash, draft-eastlake-fnv.
"""

import dataclasses
import math

import numpy as np

U64 = np.uint64


def words(name, count):
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = U64(state) + np.arange(count, dtype=U64) + U64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
        return z ^ (z >> U64(31))


@dataclasses.dataclass
class Numbers:
    """A float32 tensor, even between center - spread and center + spread."""

    shape: list
    center: float
    spread: float

    def make(self, name):
        x = (words(name, math.prod(self.shape)) >> U64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        values = np.float32(self.center) + np.float32(self.spread) * x
        return values.reshape(self.shape).astype(np.float64)

    def record(self, name):
        return [name, "F32", self.shape, self.center, self.spread]


@dataclasses.dataclass
class Bytes:
    """A tensor of unsigned bytes, low <= byte < low + span."""

    shape: list
    low: int
    span: int

    def make(self, name):
        return (self.low + (words(name, math.prod(self.shape)) >> U64(40)) % U64(self.span)).reshape(self.shape).astype(np.uint8)

    def record(self, name):
        return [name, "U8", self.shape, self.low, self.span]
