"""How the C library hands out memory."""

import contextlib
import ctypes
import gc
import re
import sys
import traceback

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8
MIB = 1 << 20
_RAN_OUT = re.compile(  # what allocators say that raise a plain RuntimeError, torch's own of a GPU too
    r"can't allocate memory|not enough memory|out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED", re.I
)


def keep_freed_memory() -> str:
    """Lets glibc keep and reuse freed memory, in one arena, instead of giving it back to the system after each
    operation; returns what was set, in words.

    Temporary tensors that come fresh from the system cost a page fault for each 4 KiB: 2,500 a decode step of a 33 M
    model on a CPU, a tenth of its time. Blocks above 32 MiB, such as weights, still go back when freed.
    """
    settings = ((M_MMAP_THRESHOLD, 32 * MIB), (M_TRIM_THRESHOLD, 512 * MIB), (M_TOP_PAD, 16 * MIB), (M_ARENA_MAX, 1))
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            if all(mallopt(name, value) == 1 for name, value in settings):
                return "glibc, one arena, freed blocks of up to 32 MiB kept"
    return "as the system has it"


def give_back() -> None:
    """Returns to the system what is freed but kept, cycles of objects included."""
    gc.collect()
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory, the host's or a GPU's, did not suffice."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_RAN_OUT.search(str(error))))


def keep_for_good(held: object) -> None:
    """Nothing frees it any more, nor the end of the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


def release_references(error: BaseException | None) -> None:
    """Frees what an error holds on to, however long it is kept itself: the variables of the functions that it ended,
    and of those that ended the errors it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    give_back()
