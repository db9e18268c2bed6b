"""How much of its weights a product fetches before its input is there, in decode steps of one row: more hides more of
what runs before it, until it is in the way of what that reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from engine.bench.gpu.report import Bench, columns
from engine.bench.gpu.sections.decode import begun, free_device_memory, measure, pool_bytes, tell_how, wrapped
from engine.bench.gpu.sections.quantized import LAYERS_WATCHED, WAYS, random_llama_8b
from engine.config.specs import EngineConfig
from engine.kernels.dependent_launch import can_depend
from engine.kernels.products import awq_matmul, gemv

# By how weights are held: the module, and what of it is tried, the shipped first.
Changes = dict[str, Any]
TRIED: dict[str, tuple[ModuleType, tuple[Changes, ...]]] = {
    "none": (
        gemv,
        ({}, {"AHEAD": 4}, {"AHEAD": 8}, {"WAVE": 100}, {"AHEAD": 4, "WAVE": 100}, {"AHEAD": 8, "WAVE": 100}),
    ),
    "awq": (
        awq_matmul,
        ({}, {"AHEAD": 16}, {"AHEAD": 32, "NARROW_AHEAD": 32}, {"NARROW_AHEAD": 64}, {"AHEAD": 4, "NARROW_AHEAD": 8}),
    ),
}


@contextmanager
def changed(module: ModuleType, changes: Changes) -> Iterator[None]:
    """The module's constants, for a while."""
    before = {name: getattr(module, name) for name in changes}
    for name, value in changes.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def fetched(bench: Bench) -> None:
    """Each change on one model, whose graphs are captured anew."""
    table = bench.table(
        f"A step of one row of {LAYERS_WATCHED} layers of Llama-3.1-8B's shape, by how much is fetched ahead",
        columns("of 5 | step ms 9.3f | × shipped 9.3f | fetched 34"),
    )
    if not (bench.rehearsal or can_depend(bench.watch.device)):
        table.say("dependent launches need a GPU of compute capability 9.0 or newer")
        return
    prompt, new = (6, 4) if bench.rehearsal else (960, 64)
    settings = EngineConfig(max_running=1, kv_memory=pool_bytes(bench) or 2 << 30)
    for way, (module, tried) in list(TRIED.items())[: 1 if bench.rehearsal else None]:
        model = wrapped(WAYS[way](random_llama_8b(bench, LAYERS_WATCHED)), f"random Llama, {way}", way)
        shipped = 0.0
        for changes in tried[: 2 if bench.rehearsal else None]:
            words = ", ".join(f"{name} {value}" for name, value in changes.items()) or "as shipped"
            if not bench.fits(0 if bench.rehearsal else 2, table, f"{way}: {words}"):
                break
            with changed(module, changes), begun(model, settings) as engine:
                if not shipped:
                    tell_how(table, engine)
                seconds = measure(bench, engine, 1, prompt, new).seconds
            shipped = shipped or seconds
            table.add(way, 1e3 * seconds, seconds / shipped, words)
        del model
        free_device_memory()
