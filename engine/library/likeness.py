"""Why the figures of two runs may not say which way of batching is quicker: all that differs beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from engine.trace import Submitted, Trace


@dataclass(frozen=True, slots=True)
class Making:
    """What a run was made of, but for the way of batching. `prompts` tells their tokens and lengths from others."""

    prompts: str
    model: str
    quantization: str
    machine: str

    @classmethod
    def of(cls, trace: Trace) -> Making:
        digest, header = hashlib.sha256(), trace.header
        for record in trace.records:
            if isinstance(record, Submitted):
                asked = f"|{record.params.max_tokens}|{record.params.branches};"
                digest.update(record.token_ids.tobytes() + asked.encode())
        machine = header.machine
        where = f"{machine.cpu}, {machine.cores} cores, {machine.gpu}"
        return cls(digest.hexdigest()[:16], header.model.source, header.model.quantization, where)


def differences(makings: Sequence[Making]) -> tuple[str, ...]:
    """What the runs do not have in common, the gravest first: "prompts", "model". Empty where all is the same."""
    names = "prompts", "model", "quantization", "machine"
    return tuple(name for name in names if len({getattr(each, name) for each in makings}) > 1)
