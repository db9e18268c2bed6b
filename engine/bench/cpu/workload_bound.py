"""The least time that a workload can take here: its matrix products as fast as they are alone, and one reading of K and
V for every token that is computed, at the rate of copies of as much memory as a step reads: all weights pass through
the processor's caches between two readings. No norm, no rotation, no sampling, no scheduling, no Python between two
products.

All prompts are there at once. Their tokens are computed in large batches; then step by step all answers that are not
over yet decode together, which is the fewest products that greedy decoding of them can do.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from engine.bench.cpu.alone import alone
from engine.bench.subject import Case
from engine.core.setup.roof import measure_roof
from engine.kernels.cpu.program import Program
from engine.kernels.cpu.recorder import Unrecordable
from engine.memory.layer_kv import kv_token_bytes
from engine.models.loading import LoadedModel
from engine.models.packed_linear import JoinedLinear, PackedLinear
from engine.trace.records import Roof

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)  # measured; between two in proportion
PASSES = 3  # of a round


@dataclass(frozen=True, slots=True)
class WorkloadBound:
    """Seconds of the products and of reading K and V, of one case."""

    products: float
    attention: float
    operations: int
    bytes_read: int

    @property
    def seconds(self) -> float:
        return self.products + self.attention


class Products:
    """The matrix products of one pass through a model, packed and joined as the engine has them, and nothing between
    them: `body` those of every token, `head` those of a token whose logits are wanted, for up to `most` rows."""

    def __init__(self, model: LoadedModel, threads: int, most: int) -> None:
        self._threads = threads
        head = model.module.get_output_embeddings()
        body = [_product(part) for part in model.module.modules() if part is not head]
        self._parts = {"body": list(filter(None, body)), "head": list(filter(None, [_product(head)]))}
        self._times: dict[str, dict[int, list[float]]] = {
            "body": {rows: [] for rows in ROWS},
            "head": {rows: [] for rows in ROWS if rows < 2 * most},
        }
        widths = {product.inputs for parts in self._parts.values() for product in parts}
        self._inputs = {n: torch.randn(max(ROWS), n, dtype=model.dtype) for n in widths}
        self._passes = {name: self._pass(parts) for name, parts in self._parts.items()}

    def _pass(self, parts: Sequence["_Product"]) -> Callable[[int], object]:
        """All of them for so many rows: replayed where that can be, so that no Python is between two."""

        def forward(rows: int) -> list[Tensor]:
            return [product.multiply(self._inputs[product.inputs][:rows]) for product in parts][-1:]

        try:
            with torch.inference_mode():
                return Program(lambda: forward(max(ROWS)), list(self._inputs.values()), max(ROWS))
        except Unrecordable:
            return forward

    def measure(self) -> None:
        """Passes at every number of rows, all in turn."""

        def passes() -> None:
            torch.set_num_threads(self._threads)
            with torch.inference_mode():
                for turn in range(PASSES + 1):
                    for name, each in self._passes.items():
                        for rows, times in self._times[name].items():
                            begun = time.perf_counter()
                            each(rows)
                            if turn:
                                times.append(time.perf_counter() - begun)

        alone(passes)

    def operations(self, name: str) -> int:
        """Of one token."""
        return sum(2 * product.inputs * product.outputs for product in self._parts[name])

    def seconds(self, name: str, rows: int) -> float:
        """The median of what was measured; in proportion between two counts, and beyond the last."""
        counts = list(self._times[name])
        at = np.interp(min(rows, counts[-1]), counts, [median(self._times[name][count]) for count in counts])
        return float(at * max(1.0, rows / counts[-1]))


class _Product(NamedTuple):
    inputs: int
    outputs: int
    multiply: Callable[[Tensor], Tensor]


def _product(part: nn.Module) -> _Product | None:
    if isinstance(part, JoinedLinear):
        product = part.product
        return None if part.index else _Product(part.in_features, sum(product.widths), product.packed.multiply)
    if isinstance(part, (PackedLinear, nn.Linear)):
        return _Product(part.in_features, part.out_features, part)
    return None


def bound_of(case: Case, model: LoadedModel, products: Products, roof: Roof) -> WorkloadBound:
    """Of a case through a model whose products were measured."""
    prompt = sum(map(len, case.prompts))
    body, head = products.operations("body"), products.operations("head")
    # Each prompt's last token gives its answer's first.
    seconds = products.seconds("body", prompt) + products.seconds("head", len(case))
    operations = prompt * body + len(case) * head
    weights = model.card.weight_bytes
    a_token = kv_token_bytes(model.layer_kv, model.dtype.itemsize)
    read, reading = prompt * a_token, 0.0
    for step in range(1, max(case.new_tokens)):
        contexts = [len(p) + step for p, new in zip(case.prompts, case.new_tokens, strict=True) if new > step]
        seconds += products.seconds("body", len(contexts)) + products.seconds("head", len(contexts))
        operations += len(contexts) * (body + head)
        bytes_ = sum(contexts) * a_token
        read += bytes_
        reading += bytes_ / roof.bandwidth_at(weights + bytes_)
    reading += prompt * a_token / roof.bandwidth_at(weights + prompt * a_token)
    return WorkloadBound(seconds, reading, operations, read)


def measured_roof(model: LoadedModel, threads: int) -> Roof:
    """How fast this machine copies now."""

    def measure() -> Roof:
        torch.set_num_threads(threads)
        return measure_roof(model.device, model.dtype, 64, 64)

    return alone(measure)
