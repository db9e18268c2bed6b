"""The CPU's kernels (`native/`), compiled for this processor once and kept in the user's cache folder."""

import ctypes
import fcntl
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from engine.kernels.cpu.compiler import SWITCH, find_compiler

SOURCES = sorted(Path(__file__).with_name("native").glob("*.[ch]"))
FLAGS = "-O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp-simd -shared -fPIC".split()
GLANCE = 0.05  # seconds between looks at whether the compiling was given up
DIGEST = hashlib.sha256().digest_size  # bytes at the end of what is kept: of all before them
SECONDS = 180.0  # that compiling may take: five, where nothing else runs


@dataclass(frozen=True, slots=True)
class Native:
    """The library, or why there is none, in words."""

    library: ctypes.CDLL | None
    why: str


_native: Native | None = None


def native(compiling: Callable[[], object] = lambda: None) -> Native:
    """Compiles at the first call on a machine, which takes some seconds. `compiling` is called all that while; what it
    raises ends the compiler. Raises nothing else."""
    global _native
    if _native is None:
        _native = look(compiling)
    return _native


def look(compiling: Callable[[], object] = lambda: None) -> Native:
    """As `native`, anew."""
    if os.environ.get(SWITCH) == "0":
        return Native(None, f"{SWITCH} is 0")
    compiler = find_compiler()
    if compiler is None:
        return Native(None, "no C compiler is here; on Debian and Ubuntu: apt install gcc libc6-dev")
    openmp = next(Path(torch.__file__).parent.glob("lib/libgomp*.so*"), None)
    if openmp is None:
        return Native(None, "this build of torch brings no OpenMP library of GNU's")
    try:
        kept = _place(compiler, openmp)
        if not _is_good(kept):
            with _alone(kept.parent, compiling):
                if not _is_good(kept):
                    _compile(compiler, openmp, kept, compiling)
        return Native(ctypes.CDLL(str(kept)), f"by {compiler}")
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        return Native(None, f"{compiler} failed: {said[-1] if said else error}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Native(None, f"{compiler}: {error}")


@cache
def function(name: str) -> Any:
    """A function of the library, which must be there."""
    library = native().library
    assert library is not None
    found = library[name]
    found.restype = ctypes.c_long if name == "panel_width" else ctypes.c_int
    return found


@cache
def work(name: str) -> ctypes.c_void_p:
    """The address of a kernel, for `run_part` and `run_program`."""
    return ctypes.cast(function(name), ctypes.c_void_p)


def _place(compiler: str, openmp: Path) -> Path:
    """Where the library of these sources, made by this compiler for this processor, is kept."""
    made_of = [
        *(source.read_text() for source in SOURCES),
        *FLAGS,
        compiler,
        str(os.stat(compiler).st_mtime_ns),
        str(openmp),
        _processor(),
    ]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchscope"
    return folder / f"native-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:20]}.so"


@contextmanager
def _alone(folder: Path, compiling: Callable[[], object]) -> Iterator[None]:
    """Of processes that miss the same library one compiles, and the others wait for it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place, end = os.open(folder, os.O_RDONLY), time.monotonic() + SECONDS
    try:
        while not _locks(place) and time.monotonic() < end:
            compiling()
            time.sleep(GLANCE)
        yield
    finally:
        os.close(place)


def _locks(place: int) -> bool:
    """False where another does. A file system without locks keeps nobody away."""
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_good(kept: Path) -> bool:
    return _is_ours(kept) and _is_whole(kept)


def _is_ours(kept: Path) -> bool:
    """A library that somebody else put there would run as this user."""
    return kept.is_file() and kept.stat().st_uid == os.getuid()


def _is_whole(kept: Path) -> bool:
    """A library of which a part is gone, as after a power cut, would end every process that loads it."""
    data = kept.read_bytes()
    return hashlib.sha256(data[:-DIGEST]).digest() == data[-DIGEST:]


def _compile(compiler: str, openmp: Path, kept: Path, compiling: Callable[[], object]) -> None:
    made = kept.with_suffix(f".{os.getpid()}")
    try:
        sources = [str(source) for source in SOURCES if source.suffix == ".c"]
        order = [compiler, *FLAGS, "-o", str(made), *sources, str(openmp), "-lm"]
        _run(order, compiling)
        with made.open("ab") as end:  # no loader minds what follows a library
            end.write(hashlib.sha256(made.read_bytes()).digest())
        made.replace(kept)
    finally:
        made.unlink(missing_ok=True)


def _run(order: list[str], compiling: Callable[[], object]) -> None:
    """Runs a compiler to its end. Raises CalledProcessError, TimeoutExpired, and what `compiling` raises: the compiler
    is then gone, with the programs that it began."""
    end, none = time.monotonic() + SECONDS, subprocess.DEVNULL
    with subprocess.Popen(order, stdin=none, stdout=none, stderr=subprocess.PIPE, start_new_session=True) as compiler:
        said = None
        try:
            while said is None:
                compiling()
                try:
                    _, said = compiler.communicate(timeout=GLANCE)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end:
                        raise
        except BaseException:
            os.killpg(compiler.pid, signal.SIGKILL)
            raise
    if compiler.returncode:
        raise subprocess.CalledProcessError(compiler.returncode, order, stderr=said)


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return "unknown"
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
