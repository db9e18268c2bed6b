"""The window's bench with all panels open: the largest pool that is drawn, and scrubbing through a run."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.bench.synthetic import synthetic_trace
from engine import EngineConfig, ModelSpec, Trace
from engine.checkpoints import inspect_model
from engine.trace import Record

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

BLOCKS, BLOCK_SIZE = 65_536, 4  # small blocks, so that a short run fills the pool
SCRUBS = 100
POLL = 0.02


def made_up(streams: int, rate: float, seconds: float) -> list[Record]:
    """A generated run in which most of the pool is used or cached."""
    return synthetic_trace(
        streams=streams, tokens_per_second=rate, seconds=seconds, blocks=BLOCKS, block_size=BLOCK_SIZE
    )


def large_pool(config: EngineConfig, source: str) -> EngineConfig:
    """The config with a pool of so many blocks, whose prefixes are kept."""
    info = inspect_model(ModelSpec(source))
    return replace(
        config,
        block_size=BLOCK_SIZE,
        prefix_caching=True,
        kv_memory=BLOCKS * BLOCK_SIZE * info.kv_token_bytes("float32"),
    )


async def scrub(window: MainWindow, streams: int, rate: float, seconds: float) -> dict[str, Any]:
    """Milliseconds in which all open panels show a random moment of a run of so many seconds."""
    bridge, scope = window.bridge, window.bridge.scope
    bridge.show(Trace(made_up(streams, rate, seconds)))
    while bridge.behind:
        await asyncio.sleep(POLL)
    scope.catch_up()
    spent, draw = [], random.Random(0)
    for _ in range(SCRUBS):
        begun = time.perf_counter()
        scope.show_at(draw.uniform(scope.origin, scope.end))
        scope.catch_up()
        spent.append(1000 * (time.perf_counter() - begun))
        await asyncio.sleep(POLL)
    steps = scope.steps
    bridge.show(Trace())
    quantiles = statistics.quantiles(spent, n=20)
    return {"p50_ms": statistics.median(spent), "p95_ms": quantiles[-1], "max_ms": max(spent), "steps": steps}
