"""The window's bench with all panels open: the largest pool that is drawn, and scrubbing through a run."""

import asyncio
import random
import time
from dataclasses import replace
from typing import Any

from app.bench.frames import spread
from app.bench.synthetic import synthetic_trace
from app.window.main_window import MainWindow
from app.window.start.application import POLL, until
from engine import EngineConfig, ModelSpec, Trace
from engine.checkpoints import inspect_model
from engine.trace import Record

BLOCKS, BLOCK_SIZE = 65_536, 4  # small blocks, so that a short run fills the pool
SCRUBS = 100


def made_up(streams: int, rate: float, seconds: float) -> list[Record]:
    """A generated run in which most of the pool is used or cached."""
    return synthetic_trace(streams, rate, seconds, blocks=BLOCKS, block_size=BLOCK_SIZE)


def large_pool(config: EngineConfig, source: str) -> EngineConfig:
    """The config with a pool of so many blocks, whose prefixes are kept."""
    info = inspect_model(ModelSpec(source))
    memory = BLOCKS * BLOCK_SIZE * info.kv_token_bytes("float32")
    return replace(config, block_size=BLOCK_SIZE, prefix_caching=True, kv_memory=memory)


async def scrub(window: MainWindow, streams: int, rate: float, seconds: float) -> dict[str, Any]:
    """Milliseconds in which all open panels show a random moment of a run of so many seconds."""
    bridge, scope = window.bridge, window.bridge.scope
    bridge.show(Trace(made_up(streams, rate, seconds)))
    await until(lambda: not bridge.behind)
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
    return {**spread(spent), "steps": steps}
