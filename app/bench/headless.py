"""The engine with no window, as a script would host it: the other side of the window's bench. No Qt."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine import EngineConfig, ModelSpec, SamplingParams, Workload, measure
from engine.workloads import demo_workload

ROOT = Path(__file__).parents[2]


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


class Headless:
    """The engine in a script of its own, ready to run the workload."""

    def __init__(self, source: str, running: int, requests: int, tokens: int, threads: int | None) -> None:
        words = [sys.executable, "-m", "app.bench.headless", source, running, requests, tokens, threads or 0]
        self._child = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.threads = self._answer()["threads"]

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError("the headless engine ended early; run `batchscope doctor`")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def round(self) -> float:
        """Tokens a second; blocks this thread, so that the window does nothing meanwhile."""
        assert self._child.stdin is not None
        self._child.stdin.write("run\n")
        self._child.stdin.flush()
        return float(self._answer()["throughput"])

    def close(self) -> None:
        self._child.communicate()


if __name__ == "__main__":
    name, running, count, length, limit = sys.argv[1:]
    serve(name, int(running), int(count), int(length), int(limit) or None)
