"""`batchscope bench --techniques`: one table, one technique after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import import_module

from engine.bench.techniques.measured import Measured, table
from engine.config.checks import one_of

TECHNIQUES = {
    "speculation": "engine.bench.techniques.speculation",
    "beams": "engine.bench.techniques.beams",
    "kv": "engine.bench.techniques.kv_precision",
    "swap": "engine.bench.techniques.swap",
    "offload": "engine.bench.techniques.offloading",
    "constrained": "engine.bench.techniques.constrained",
    "compression": "engine.bench.techniques.compression",
    "adapters": "engine.bench.techniques.adapters",
    "attention": "engine.bench.techniques.attention",
    "forgetting": "engine.bench.techniques.forgetting",
    "pace": "engine.bench.techniques.pace",
    "latents": "engine.bench.techniques.latents",
    "states": "engine.bench.techniques.states",
}
"""Each a module with `measure(rounds, threads) -> Iterator[Measured]`."""


def run(names: Sequence[str], rounds: int, threads: int | None, json_output: bool) -> int:
    """Measures the techniques and prints them. 0 where every goal is reached, else 1. Raises InvalidInput."""
    for name in names:
        one_of("techniques", name, TECHNIQUES)
    found: list[Measured] = []
    for name in names or TECHNIQUES:
        measure: Callable[[int, int | None], Iterator[Measured]] = import_module(TECHNIQUES[name]).measure
        found += measure(rounds, threads)
    print(json.dumps([asdict(one) for one in found], indent=2) if json_output else table(found))
    return int(not all(one.reached for one in found))
