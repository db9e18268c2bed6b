"""Compiles what the sections launch, beside the tests: Triton takes a core for seconds a kernel, and keeps it on disk.

`python -m engine.bench.gpu.warm NAME` does one job. A load meets all that a run can launch, and a model of one layer
launches what one of many does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from transformers import PreTrainedModel

from engine.bench.gpu.report import Bench
from engine.bench.gpu.sections.adapters import adapters
from engine.bench.gpu.sections.attention import Case, K, Kernels, Pool, compile_share
from engine.bench.gpu.sections.decode import begun, pool_bytes, random_qwen3, switched, wrapped
from engine.bench.gpu.sections.fetched import TRIED, changed
from engine.bench.gpu.sections.fused import fused
from engine.bench.gpu.sections.mixture import experts_alone, in_codes, random_mixture
from engine.bench.gpu.sections.quantized import BATCHES, WAYS, random_llama_8b
from engine.bench.gpu.sections.small_kernels import sampling, small
from engine.bench.gpu.sections.states import states
from engine.bench.gpu.sections.yardstick import settings
from engine.bench.gpu.stopwatch import Do, GpuStopwatch
from engine.config.schemes import missing
from engine.config.specs import EngineConfig

POOL = 1 << 30  # bytes
MANY = 256  # rows that are cut otherwise than a few
APART = 64  # rows that are cut as a few, and whose launches do not depend
LAYERS = 2  # of which the second fetches keys ahead
SHARES = 3  # processes that compile tilings


class Launching(GpuStopwatch):
    """Launches what it is to time, once."""

    def seconds(self, do: Do) -> float:
        do()
        self.wait()
        return 1.0

    def captured(self, do: Do) -> Do:
        return do


def of_yardstick(bench: Bench, dependent: bool = True, fused: bool = True) -> None:
    """The kernels of Qwen3-0.6B's shape, as the yardstick and `decode` load it."""
    with switched(dependent):
        meet(bench, random_qwen3(bench, LAYERS), settings(bench), fused=fused)


def of_large(bench: Bench, quantization: str = "none") -> None:
    """Those of Llama-3.1-8B's shape, dense or quantized."""
    if not missing(quantization):
        module = WAYS[quantization](random_llama_8b(bench, LAYERS))
        meet(bench, module, EngineConfig(max_running=max(BATCHES)), quantization)


def of_mixture(bench: Bench) -> None:
    """Those of a mixture's layer, and every tiling of its experts that is tried."""
    meet(bench, random_mixture(bench, 1), settings(bench))
    if not missing("nf4"):
        meet(bench, in_codes(random_mixture(bench, 1), "nf4"), settings(bench))
    if not bench.rehearsal:
        experts_alone(bench)


def of_fetched(bench: Bench) -> None:
    """Those of each change that `fetched` makes."""
    for way, (module, tried) in list(TRIED.items())[: 1 if bench.rehearsal else None]:
        for changes in tried[1:2] if bench.rehearsal else tried[1:]:
            with changed(module, changes):
                of_large(bench, way)


def meet(
    bench: Bench, module: PreTrainedModel, config: EngineConfig, quantization: str = "none", fused: bool = True
) -> None:
    """Loads the model, which compiles whatever a run could ask for."""
    config = replace(config, kv_memory=pool_bytes(bench) or POOL)
    with begun(wrapped(module, "a layer", quantization, fused), config):
        pass


def of_attention(bench: Bench) -> None:
    """Those that are timed alone: one row and most rows of the shortest context that is timed, of each group."""
    kernels, pool = Kernels(bench), Pool(bench.watch, *((1, 32, 512) if bench.rehearsal else (8, 128, MANY * K)))
    least, rows = min(case.context for case in kernels.decode), (1,) if bench.rehearsal else (1, APART, MANY)
    decode = {Case(batch, least, case.group) for case in kernels.decode for batch in rows}
    shortest = min(case.context for case in kernels.prefill)
    prefill = {Case(1, shortest, case.group, shortest) for case in kernels.prefill}
    for case in decode | prefill:
        assert pool.holds(case)
        pool.lay_out(case).call()


def of_small(bench: Bench) -> None:
    """Sections whose kernels no model above launches, in which few bytes are moved: at a rehearsal they come anyway."""
    for section in () if bench.rehearsal else (fused, sampling, small, adapters, states):
        section(bench)


def of_tilings(bench: Bench, share: int) -> None:
    """Those that the section tries where time is short."""
    if not bench.rehearsal:
        compile_share(share, SHARES, thorough=False)


JOBS: dict[str, Callable[[Bench], None]] = {
    "yardstick": of_yardstick,
    "not dependent": partial(of_yardstick, dependent=False),
    "not fused": partial(of_yardstick, fused=False),
    "large": of_large,
    "awq": partial(of_large, quantization="awq"),
    "nf4": partial(of_large, quantization="nf4"),
    "mixture": of_mixture,
    "fetched": of_fetched,
    "attention": of_attention,
    **{f"tilings {share + 1}": partial(of_tilings, share=share) for share in range(SHARES)},
    "small": of_small,
}


if __name__ == "__main__":
    JOBS[sys.argv[1]](Bench(Launching()))
