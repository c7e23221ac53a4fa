"""libheadwater_attention.so in Python: the C interface of src/backend/cuda/c_interface.h. Pointers are integers."""

import ctypes

PATHS = ("flat", "shared", "mixed")
SHARING = {"off": 0, "auto": 1, "always": 2}
DTYPES = {"bfloat16": 0, "float16": 1}

ARMS = {  # of a comparison: sharing, and whether the bits must not depend on what is shared
    "headwater_off": ("off", False),
    "headwater_auto": ("auto", False),
    "headwater_invariant": ("auto", True),
}
SHARED_BATCH_MIN, SHARED_TOKENS_MIN = 4, 2048  # a cell that reaches both should be shared: a row of the record


class AttentionError(Exception):
    """The library cannot be loaded, or a call of it failed."""


class Config(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in (
        "q_heads", "kv_heads", "head_dim", "page_size", "dtype", "sequences_max", "tokens_max",
        "pages_per_sequence_max", "sharing", "invariant")]


class Kv(ctypes.Structure):
    """The pages of one layer; strides in elements."""

    _fields_ = [("k", ctypes.c_void_p), ("v", ctypes.c_void_p), ("pages", ctypes.c_uint64),
                ("page_stride", ctypes.c_uint64), ("slot_stride", ctypes.c_uint64), ("head_stride", ctypes.c_uint64)]


class Outcome(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_uint32) for name in ("path", "groups", "members", "shared_pages", "items", "splits")),
                *((name, ctypes.c_uint64) for name in ("bytes_read", "bytes_flat", "bytes_unique")),
                ("predicted_us", ctypes.c_double), ("reason", ctypes.c_char_p)]

    def fields(self):
        values = {name: getattr(self, name) for name, _ in self._fields_}
        path = PATHS[self.path] if self.path < len(PATHS) else f"unknown {self.path}"
        return values | {"path": path, "predicted_us": round(self.predicted_us, 2),
                         "reason": (self.reason or b"").decode()}


def must_share(cell):
    return cell.batch >= SHARED_BATCH_MIN and cell.shared >= SHARED_TOKENS_MIN


def path_faults(cell, arm, path):
    """What is wrong with the path that an arm took, a sentence each. Whether auto shares is its own choice, and the record's
    row "path shared" says what it chose."""
    if ARMS[arm][0] == "off" and path != "flat":
        return [f"sharing is off, and the plan says {path}"]
    if cell.shared == 0 and path != "flat":
        return [f"nothing is shared, and the plan says {path}"]
    return []


def words(values):
    """A host array of uint32, as the plan takes it."""
    values = list(values)
    return (ctypes.c_uint32 * len(values))(*values)


_POINTER, _WORDS = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
_CALLS = {
    "create": (ctypes.c_int, [ctypes.POINTER(Config), ctypes.POINTER(_POINTER)]),
    "plan": (ctypes.c_int, [_POINTER, ctypes.c_uint32, _WORDS, _WORDS, _WORDS, _WORDS, _POINTER,
                            ctypes.POINTER(Outcome)]),
    "run": (ctypes.c_int, [_POINTER, ctypes.POINTER(Kv), _POINTER, _POINTER, _POINTER, ctypes.c_float, _POINTER]),
    "destroy": (None, [_POINTER]),
    "error": (ctypes.c_char_p, []),
    "read_floor": (ctypes.c_int, [_POINTER, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, _POINTER]),
}


class Library:
    def __init__(self, path):
        try:
            self._functions = library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _CALLS.items():
                call = getattr(library, f"headwater_attention_{name}")
                call.restype, call.argtypes = result, arguments
                setattr(self, name, call)
        except (OSError, AttributeError) as failure:
            raise AttentionError(f"{path}: {failure}; build it with HEADWATER_CUDA=ON, or name it with --library") \
                from failure

    def checked(self, name, *arguments):
        code = getattr(self, name)(*arguments)
        if code != 0:
            raise AttentionError(f"headwater_attention_{name}: code {code}, {(self.error() or b'').decode()}")

    def stamps(self, block_bytes):
        """(bytes, blocks) that the last run of the process has left, of so many bytes a block. Only builds with clocks know."""
        try:
            call = self._functions.headwater_attention_clocks
        except AttributeError:
            raise AttentionError("the library has no clocks; build it with HEADWATER_KERNEL_CLOCKS=ON") from None
        blocks = ctypes.c_uint32()
        call.restype, call.argtypes = ctypes.c_void_p, [ctypes.POINTER(ctypes.c_uint32)]
        address = call(ctypes.byref(blocks))
        if not address:
            raise AttentionError("no run of a Hopper kernel has stamped anything, or its stamps could not be copied")
        return ctypes.string_at(address, blocks.value * block_bytes), blocks.value

    def enqueue_read(self, memory, memory_bytes, read_bytes, piece_bytes, stream):
        """A kernel that only reads `read_bytes` in pieces at random places of the memory."""
        self.checked("read_floor", memory, memory_bytes, read_bytes, piece_bytes, stream)


class Attention:
    """One plan and the scratch of its runs."""

    def __init__(self, library, **config):
        self._library, self._handle = library, _POINTER()
        library.checked("create", ctypes.byref(Config(**config)), ctypes.byref(self._handle))

    def __del__(self):
        if self._handle:
            self._library.destroy(self._handle)

    def plan(self, page_indptr, page_ids, kv_len, q_indptr, stream):
        """Arrays of words(); uploads on the stream. What was planned."""
        outcome = Outcome()
        self._library.checked("plan", self._handle, len(kv_len), page_indptr, page_ids, kv_len, q_indptr, stream,
                              ctypes.byref(outcome))
        return outcome

    def run(self, kv, q, out, scale, stream):
        """Enqueues one layer: kv a Kv, q and out device pointers to [tokens, q_heads, head_dim]."""
        self._library.checked("run", self._handle, ctypes.byref(kv), q, out, None, scale, stream)
