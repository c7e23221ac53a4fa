"""The cells of a comparison of attention kernels, and what a cell's work comes to.

A cell is one decode step of one layer: `batch` sequences with one query row each. All have the first `shared` tokens in
common and `tail` tokens of their own; the common pages are held once. K, V, queries and outputs have 2-byte elements.
"""

import dataclasses
import json
import re

ELEMENT_BYTES = 2
DTYPES = ("bfloat16", "float16")
MATRIX_TFLOP_PER_S = 790  # a bf16 product of 8192 x 8192 x 8192 on an H200


class CellError(Exception):
    """A grid, or a selection of its cells, says something that cannot be measured."""


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    batch: int
    shared: int  # tokens
    tail: int  # tokens of each sequence
    q_heads: int
    kv_heads: int
    head_dim: int
    page: int  # tokens of a page
    dtype: str

    def __post_init__(self):
        counts = (self.batch, self.tail, self.q_heads, self.kv_heads, self.head_dim, self.page)
        if min(counts) < 1 or self.shared < 0:
            raise CellError(f"{self.name}: counts must be positive")
        if self.shared % self.page:
            raise CellError(f"{self.name}: {self.shared} shared tokens are not whole pages of {self.page}")
        if self.q_heads % self.kv_heads:
            raise CellError(f"{self.name}: {self.q_heads} query heads do not divide among {self.kv_heads} KV heads")
        if self.dtype not in DTYPES:
            raise CellError(f"{self.name}: dtype {self.dtype}, but a cell has one of {', '.join(DTYPES)}")

    @property
    def length(self):
        """Tokens that each query attends to."""
        return self.shared + self.tail

    @property
    def shared_pages(self):
        return self.shared // self.page

    @property
    def tail_pages(self):
        """Pages of one sequence's own tokens."""
        return -(-self.tail // self.page)

    @property
    def pages(self):
        """Different pages."""
        return self.shared_pages + self.batch * self.tail_pages

    @property
    def unique_bytes(self):
        """K and V of every token once."""
        return (self.shared + self.batch * self.tail) * 2 * self.kv_heads * self.head_dim * ELEMENT_BYTES

    @property
    def piece_bytes(self):
        """K or V of one page and one KV head."""
        return self.page * self.head_dim * ELEMENT_BYTES

    @property
    def stacked_rows(self):
        """Query rows of all sequences that meet one KV head of the shared run."""
        return self.batch * self.q_heads // self.kv_heads

    def flop(self, tokens):
        """Useful matrix work of every query with `tokens` tokens: two products, a multiply and an add each."""
        return 4 * self.batch * self.q_heads * tokens * self.head_dim

    @property
    def matrix_us(self):
        return self.flop(self.length) / MATRIX_TFLOP_PER_S / 1e6


def load(path):
    with open(path, encoding="utf-8") as file:
        cells = [Cell(**entry) for entry in json.load(file)]
    names = [cell.name for cell in cells]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CellError(f"{path}: {', '.join(twice)} more than once")
    return cells


def shard_of(text):
    """"i/n" as two numbers with 0 <= i < n."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    index, count = map(int, match.groups()) if match else (0, 0)
    if index >= count:
        raise CellError(f"--shard {text}: write i/n with 0 <= i < n")
    return index, count


def select(cells, pattern=".", shard="0/1"):
    """The cells whose name matches the regular expression, and of these every n-th."""
    index, count = shard_of(shard)
    return [cell for cell in cells if re.search(pattern, cell.name)][index::count]
