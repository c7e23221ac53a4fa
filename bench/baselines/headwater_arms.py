"""Our attention as arms of a comparison: sharing off, as planned, and that with the bits of off. Needs torch."""

import torch
from attention_problem import Arm
from headwater_attention import ARMS, DTYPES, SHARING, Attention, Kv, path_faults, words

READ_MEMORY_BYTES = 4 << 30


def stream():
    return torch.cuda.current_stream().cuda_stream


def paged_kv(problem):
    kv = problem.kv
    slot, head = (2, 3) if problem.layout == "NHD" else (3, 2)
    return Kv(k=kv[:, 0].data_ptr(), v=kv[:, 1].data_ptr(), pages=kv.shape[0], page_stride=kv.stride(0),
              slot_stride=kv.stride(slot), head_stride=kv.stride(head))


class Planned:
    """Attention with the host arrays of a problem."""

    def __init__(self, library, problem, sharing, invariant):
        cell, host = problem.cell, problem.host
        self._problem, self._kv, self._out = problem, paged_kv(problem), problem.empty_output()
        self._attention = Attention(
            library, q_heads=cell.q_heads, kv_heads=cell.kv_heads, head_dim=cell.head_dim, page_size=cell.page,
            dtype=DTYPES[cell.dtype], sequences_max=cell.batch, tokens_max=cell.batch,
            pages_per_sequence_max=cell.shared_pages + cell.tail_pages, sharing=SHARING[sharing],
            invariant=int(invariant))
        self._indptr, self._ids = words(host.page_indptr.tolist()), words(problem.page_table.flatten().tolist())
        self._rows, self._lengths = words(host.q_indptr.tolist()), words(host.kv_len.tolist())
        a_page_less = (cell.tail - 1) % cell.page == 0
        self._lengths_before = self._lengths if a_page_less else words(length - 1 for length in self._lengths)

    def plan(self):
        self._outcome = self._plan(self._lengths)

    def outcome(self):
        """What was planned last, as fields of a record: not part of plan(), whose time counts."""
        return self._outcome.fields()

    def plan_before(self):
        """The step before: every sequence a token shorter, where that takes no page away."""
        self._plan(self._lengths_before)

    def _plan(self, lengths):
        return self._attention.plan(self._indptr, self._ids, lengths, self._rows, stream())

    def run(self):
        problem = self._problem
        self._attention.run(self._kv, problem.q.data_ptr(), self._out.data_ptr(), problem.scale, stream())
        return self._out


def has_bits_of_off(library, problem, planned):
    """Whether an invariant arm gives the bits that it gives with sharing off."""
    alone = Planned(library, problem, "off", invariant=True)
    alone.plan()
    return torch.equal(planned.run().view(torch.int16), alone.run().view(torch.int16))


def make(library, problem, name):
    sharing, invariant = ARMS[name]
    planned = Planned(library, problem, sharing, invariant)

    def describe():
        outcome = planned.outcome()
        faults = path_faults(problem.cell, name, outcome["path"])
        if invariant and not has_bits_of_off(library, problem, planned):
            faults.append("the bits differ from those without sharing")
        return {"outcome": outcome, "faults": faults}

    return Arm(plan=planned.plan, plan_before=planned.plan_before, run=planned.run, describe=describe)


class ReadFloor:
    """Reading a cell's unique bytes and doing nothing else, as work for the timer."""

    def __init__(self, library):
        self._library = library
        self._memory = torch.empty(READ_MEMORY_BYTES, dtype=torch.uint8, device="cuda").random_()

    def work(self, cell):
        return lambda: self._library.enqueue_read(self._memory.data_ptr(), self._memory.nbytes, cell.unique_bytes,
                                                  cell.piece_bytes, stream())
