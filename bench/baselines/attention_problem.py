"""The tensors of one cell, the reference for its outputs, and what an arm is. Needs torch with CUDA."""

import dataclasses
import math
import types
from collections.abc import Callable

import torch

TOLERANCE = 1e-2  # relative error of a right output
LAYOUTS = ("NHD", "HND")  # of a page: [page, kv_heads, head_dim] or [kv_heads, page, head_dim]


@dataclasses.dataclass
class Arm:
    """One way to compute a cell."""

    run: Callable  # enqueues one layer's attention on the current stream and returns the output tensor
    plan: Callable | None = None  # what the host does once per step, its upload included
    plan_before: Callable | None = None  # plans another step, so that a timed plan() finds changed lengths
    describe: Callable = dict  # what ran, as fields of the record; called after run


class Problem:
    """Queries and a paged KV pool of random normal numbers; pages lie in shuffled order."""

    def __init__(self, cell, layout):
        self.cell, self.layout, self.dtype = cell, layout, getattr(torch, cell.dtype)
        generator = torch.Generator(device="cuda").manual_seed(20)
        normal = dict(dtype=self.dtype, device="cuda", generator=generator)
        page = (cell.page, cell.kv_heads) if layout == "NHD" else (cell.kv_heads, cell.page)
        self.kv = torch.randn(cell.pages, 2, *page, cell.head_dim, **normal)
        self.q = torch.randn(cell.batch, cell.q_heads, cell.head_dim, **normal)
        order = torch.randperm(cell.pages, device="cuda", generator=generator).int()
        self.shared_table = order[: cell.shared_pages].contiguous()
        self.tail_table = order[cell.shared_pages :].view(cell.batch, cell.tail_pages).contiguous()
        self.page_table = torch.cat([self.shared_table.expand(cell.batch, -1), self.tail_table], 1).contiguous()
        self.host = self._host_arrays()

    def _host_arrays(self):
        """Offsets and lengths as int32 tensors on the host; `levels` is [shared run, tails]."""
        cell = self.cell
        ramp = torch.arange(cell.batch + 1, dtype=torch.int32)
        last = cell.tail - (cell.tail_pages - 1) * cell.page
        each = lambda value: torch.full((cell.batch,), value, dtype=torch.int32)
        one = lambda *values: torch.tensor(values, dtype=torch.int32)
        return types.SimpleNamespace(
            q_indptr=ramp, page_indptr=ramp * (cell.shared_pages + cell.tail_pages), last_page=each(last),
            kv_len=each(cell.length),
            levels=types.SimpleNamespace(q_indptr=[one(0, cell.batch), ramp],
                                         page_indptr=[one(0, cell.shared_pages), ramp * cell.tail_pages],
                                         last_page=[one(cell.page), each(last)]))

    @property
    def scale(self):
        return 1 / math.sqrt(self.cell.head_dim)

    def empty_output(self):
        """An output tensor full of NaN: an element that nobody writes shows."""
        return torch.full_like(self.q, math.nan)

    def reference(self):
        """All outputs in fp32: [batch, q_heads, head_dim]."""
        return torch.stack([self._sequence_reference(sequence) for sequence in range(self.cell.batch)])

    def _sequence_reference(self, sequence):
        cell = self.cell
        kv = self.kv[self.page_table[sequence].long()].float()
        if self.layout == "HND":
            kv = kv.transpose(2, 3)
        k, v = (kv[:, side].reshape(-1, cell.kv_heads, cell.head_dim)[: cell.length] for side in (0, 1))
        q = self.q[sequence].float().view(cell.kv_heads, -1, cell.head_dim)
        weights = torch.softmax(torch.einsum("hgd,thd->hgt", q, k) * self.scale, -1)
        return torch.einsum("hgt,thd->hgd", weights, v).reshape(cell.q_heads, cell.head_dim)


def check_output(output, reference):
    """(the largest relative error of a sequence, faults)."""
    difference = (output.float() - reference).flatten(1).norm(dim=1)
    error = float((difference / reference.flatten(1).norm(dim=1)).max())
    if not math.isfinite(error):
        return None, ["an element of the output is not finite or was not written"]
    return error, [f"relative error {error:.1e} against fp32, right is under {TOLERANCE:g}"] * (error >= TOLERANCE)
