"""The engine with no window, as a script would host it: the other side of the window's bench. No Qt."""

from __future__ import annotations

import json
import sys

from engine import EngineConfig, ModelSpec, SamplingParams, Workload, demo_workload, measure


def bench_workload(requests: int, tokens: int) -> Workload:
    """Story prompts that all run to `tokens` tokens."""
    return demo_workload(requests, SamplingParams(max_tokens=tokens, temperature=0.8, ignore_eos=True, seed=1))


def serve(source: str, max_running: int, requests: int, tokens: int, threads: int | None) -> None:
    """Loads once; for every line on stdin runs the workload and prints its figures as a line of JSON."""
    from engine import Engine  # brings torch, which the window's process must not have

    config = EngineConfig(max_running=max_running)
    with Engine(ModelSpec(source), config, threads=threads) as engine:
        print(json.dumps({"threads": engine.trace.header.machine.threads}), flush=True)
        for _ in sys.stdin:
            metrics = measure(engine.run(bench_workload(requests, tokens)).result())
            print(json.dumps({"throughput": metrics.output_throughput, "p50": metrics.itl.p50}), flush=True)


if __name__ == "__main__":
    name, running, count, length, limit = sys.argv[1:]
    serve(name, int(running), int(count), int(length), int(limit) or None)
