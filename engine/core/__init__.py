"""The engine: its loop, its process, and the streams it answers with."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.core.child.process import EngineProcess
from engine.core.face import EngineFace
from engine.core.machine import memory as host_memory
from engine.core.machine import processor_name, usable_cores
from engine.core.machine.nvml import Card, cards, nvidia_driver
from engine.core.run import Run
from engine.core.stream import Completion, Delta, Stream
from engine.kernels.needs import Toolchain, too_old

if TYPE_CHECKING:
    from engine.core.engine import Engine


def __getattr__(name: str) -> Any:
    if name == "Engine":  # needs torch
        with _uncollected():
            from engine.core.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def import_engine() -> "type[Engine]":
    """`Engine`, imported in two thirds of the time, for a process in which nothing else uses torch or transformers: the
    latter goes without distributed modules and flex attention from then on."""
    if "transformers" not in sys.modules:
        with _uncollected(), contextlib.suppress(Exception):  # of another version, say; then it takes as long as ever
            from engine.core.child.preload import ENGINE, preload

            preload([ENGINE])
    from engine.core.engine import Engine

    return Engine


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """While modules are imported, collections are all in vain and a fifth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
