"""`batchscope bench --serve`: our server beside others, and what HTTP costs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from engine.bench.serving.servers import OURS
from engine.config.checks import InvalidInput
from engine.core.machine import describe, usable_cores

HTTP_ROUNDS = 3  # in place of one: some seconds each, and the CPU of an event varied from 28 to 60 µs between them


def run(rounds: int, threads: int | None, soak: int | None, json_output: bool, say: Callable[[str], None]) -> int:
    """Measures, telling its progress, and prints. `soak`: so many requests whose clients go away, after all else. 0
    where the goals are reached and nothing failed, else 1. Raises InvalidInput where our server is not installed."""
    if OURS.missing:
        raise InvalidInput(OURS.missing)
    from engine.bench.serving import beside, disconnects, http_cost

    used = threads or max(1, usable_cores() - 1)  # HTTP has a core for itself
    servers = beside.race(rounds, used, say)
    cost = http_cost.measure(HTTP_ROUNDS * rounds, threads, say)
    left = disconnects.leave(soak, say=say) if soak else None
    if json_output:
        machine = asdict(describe(used))
        told = {"machine": machine, "servers": asdict(servers), "http": asdict(cost)}
        print(json.dumps(told | ({"disconnects": asdict(left)} if left else {}), indent=2))
    else:
        print("\n\n".join(part.text() for part in (servers, cost, left) if part))
    return int(servers.failed or not cost.reached or bool(left and left.failed))
