"""FlashInfer's ways to compute a cell: six that attend to every page list whole, four in two levels. Needs torch.

Flat: the decode wrapper on CUDA cores and on tensor cores, the prefill wrapper with one query row (FA2, FA3), the
persistent BatchAttention, and XQA, which has no plan. Cascade: the two-level wrapper as shipped (it chooses FA2 or FA3
per level), with either forced, and the same levels put together from public calls with the caller's own buffers.
Every arm gets what favours it: plans that may size their grid by the lengths, offsets on the host, an output buffer
wherever a call takes one.
"""

import functools
import importlib
import pathlib
import sys

import torch
from attention_problem import Arm

WORKSPACE_BYTES = 512 << 20
PERSISTENT_BYTES = 1280 << 20  # BatchAttention's own 384 MiB are too few for 32 KV heads


@functools.cache
def package():
    """The package flashinfer, which the script of the same name beside this file would hide."""
    here, path = pathlib.Path(__file__).resolve().parent, sys.path[:]
    sys.path[:] = [folder for folder in path if pathlib.Path(folder).resolve() != here]
    try:
        return importlib.import_module("flashinfer")
    finally:
        sys.path[:] = path


class Workspaces:
    """Scratch memory that the arms of all cells use in turn."""

    @functools.cached_property
    def shared(self):
        return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    @functools.cached_property
    def xqa(self):
        return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    @functools.cached_property
    def persistent(self):
        return torch.empty(PERSISTENT_BYTES, dtype=torch.uint8, device="cuda")


def _shape(problem):
    cell = problem.cell
    return cell.q_heads, cell.kv_heads, cell.head_dim, cell.page


def _types(problem):
    return {"q_data_type": problem.dtype, "kv_data_type": problem.dtype}


def _backends(*wrappers):
    return lambda: {"backends": [wrapper._backend for wrapper in wrappers]}


def flat_decode(problem, workspaces, tensor_cores):
    wrapper = package().BatchDecodeWithPagedKVCacheWrapper(workspaces.shared, problem.layout,
                                                           use_tensor_cores=tensor_cores)
    host, pages, out = problem.host, problem.page_table.flatten(), problem.empty_output()
    return Arm(plan=lambda: wrapper.plan(host.page_indptr, pages, host.last_page, *_shape(problem), **_types(problem)),
               run=lambda: wrapper.run(problem.q, problem.kv, out=out),
               describe=_backends(wrapper) if tensor_cores else dict)


def flat_prefill(problem, workspaces, backend):
    wrapper = package().BatchPrefillWithPagedKVCacheWrapper(workspaces.shared, problem.layout, backend=backend)
    host, pages, out = problem.host, problem.page_table.flatten(), problem.empty_output()
    return Arm(plan=lambda: wrapper.plan(host.q_indptr, host.page_indptr, pages, host.last_page, *_shape(problem),
                                         **_types(problem)),
               run=lambda: wrapper.run(problem.q, problem.kv, out=out), describe=_backends(wrapper))


def flat_persistent(problem, workspaces):
    wrapper = package().BatchAttention(problem.layout, "cuda")
    wrapper.float_workspace_buffer = workspaces.persistent
    cell, host, pages, out = problem.cell, problem.host, problem.page_table.flatten(), problem.empty_output()
    lse = torch.empty(problem.q.shape[:2], dtype=torch.float32, device="cuda")
    return Arm(plan=lambda: wrapper.plan(host.q_indptr, host.page_indptr, pages, host.kv_len, cell.q_heads,
                                         cell.kv_heads, cell.head_dim, cell.head_dim, cell.page, **_types(problem)),
               run=lambda: wrapper.run(problem.q, problem.kv, out=out, lse=lse)[0])


def flat_xqa(problem, workspaces):
    workspace = workspaces.xqa.zero_()  # its counters begin at zero
    lengths = problem.host.kv_len.cuda().to(torch.uint32)
    out = problem.empty_output()
    return Arm(run=lambda: package().decode.xqa_batch_decode_with_kv_cache(
        problem.q, problem.kv, workspace, problem.page_table, lengths, problem.cell.length, bmm1_scale=problem.scale,
        out=out, kv_layout=problem.layout))


def cascade(problem, workspaces, backend):
    wrapper = package().MultiLevelCascadeAttentionWrapper(2, workspaces.shared, problem.layout)
    levels = wrapper._batch_prefill_wrappers
    if backend != "auto":  # the wrapper has no argument for it
        for level in levels:
            level._requested_backend = level._backend = backend
    host, pages = problem.host.levels, [problem.shared_table, problem.tail_table.flatten()]
    return Arm(plan=lambda: wrapper.plan(host.q_indptr, host.page_indptr, pages, host.last_page, *_shape(problem),
                                         **_types(problem)),
               run=lambda: wrapper.run(problem.q, problem.kv), describe=_backends(*levels))


def cascade_manual(problem, workspaces):
    prefix = package().BatchPrefillWithPagedKVCacheWrapper(workspaces.shared, problem.layout)
    tails = package().BatchDecodeWithPagedKVCacheWrapper(workspaces.shared, problem.layout, use_tensor_cores=True)
    host, pages = problem.host.levels, problem.tail_table.flatten()
    out, prefix_out = problem.empty_output(), problem.empty_output()
    lse, prefix_lse = (torch.empty(problem.q.shape[:2], dtype=torch.float32, device="cuda") for _ in range(2))

    def plan():
        prefix.plan(host.q_indptr[0], host.page_indptr[0], problem.shared_table, host.last_page[0], *_shape(problem),
                    **_types(problem))
        tails.plan(host.page_indptr[1], pages, host.last_page[1], *_shape(problem), **_types(problem))

    def run():
        tails.run(problem.q, problem.kv, out=out, lse=lse, return_lse=True)
        prefix.run(problem.q, problem.kv, out=prefix_out, lse=prefix_lse, return_lse=True)
        package().merge_state_in_place(out, lse, prefix_out, prefix_lse)
        return out

    return Arm(plan=plan, run=run, describe=_backends(prefix, tails))


MAKERS = {
    "flat_decode_cuda": functools.partial(flat_decode, tensor_cores=False),
    "flat_decode_tc": functools.partial(flat_decode, tensor_cores=True),
    "flat_prefill_fa2": functools.partial(flat_prefill, backend="fa2"),
    "flat_prefill_fa3": functools.partial(flat_prefill, backend="fa3"),
    "flat_persistent": flat_persistent,
    "flat_xqa": flat_xqa,
    "cascade_auto": functools.partial(cascade, backend="auto"),
    "cascade_fa2": functools.partial(cascade, backend="fa2"),
    "cascade_fa3": functools.partial(cascade, backend="fa3"),
    "cascade_manual": cascade_manual,
}
