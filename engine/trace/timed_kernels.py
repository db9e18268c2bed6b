"""What the kernels of replayed steps took, beside the least that this machine needs for what they read and compute.

The least is the roof's (Williams, Waterman and Patterson 2009, "Roofline"): bytes at the bandwidth that was measured at
a working set of all the step's bytes, or operations at the rate of matrix products, whichever takes longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.trace.column import Array
from engine.trace.records import Header, Kernels, Step
from engine.trace.work import Weights, activated, count_work

ATTENTION, STORE, STATES = "decode_attention", "store_kv", "delta_rule"
EXPERTS = ("experts gate_up", "experts down")


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Columns `[kernels]`: `seconds` that were taken; those that reading the `bytes` and computing the `operations`
    takes at the least, `memory` and `compute`. What nobody counts is 0: values between two kernels, which stay near the
    cores, and all of a model that is split."""

    kernels: Kernels
    seconds: Array
    bytes: Array
    operations: Array
    memory: Array
    compute: Array

    @property
    def least(self) -> Array:
        """Seconds."""
        return np.maximum(self.memory, self.compute)


def kernel_times(header: Header, steps: Sequence[Step]) -> KernelTimes | None:
    """Of those of the steps that were replayed, added up; None where none was, or nobody noted it."""
    told, kernels = [step for step in steps if len(step.kernel)], header.kernels
    if not told or kernels is None:
        return None
    seconds = np.stack([step.kernel for step in told]).sum(axis=0, dtype=np.float64)
    work, card = count_work(header, told), header.model
    runs = np.ceil(work.tokens / header.most_tokens)  # each of which reads the weights
    share = Weights.of(card).share
    written = work.tokens * card.kv_token_bytes
    of_step = np.where(kernels.drawn, work.sampled[:, None], work.tokens[:, None])
    operations = 2.0 * np.array(kernels.weights) * of_step
    sizes = np.array(kernels.bytes) * runs[:, None]
    for i, name in enumerate(kernels.names):
        if name == ATTENTION:
            operations[:, i] = work.attention_operations - work.state_operations
            sizes[:, i] = work.attention_bytes - work.state_bytes - written
        elif name == STATES:
            operations[:, i], sizes[:, i] = work.state_operations, work.state_bytes
        elif name == STORE:
            sizes[:, i] = written
        elif name in EXPERTS:
            operations[:, i] *= share
            sizes[:, i] *= activated(share, told, work.tokens)
    if header.split > 1:
        operations, sizes = np.zeros_like(operations), np.zeros_like(sizes)
    memory = compute = np.zeros_like(sizes)
    if header.roof is not None:
        bandwidths = np.array([header.roof.bandwidth_at(size) for size in work.bytes.tolist()])
        memory, compute = sizes / bandwidths[:, None], operations / header.roof.operations
    return KernelTimes(kernels, seconds, *(each.sum(axis=0) for each in (sizes, operations, memory, compute)))
