"""Records as bytes, and back."""

import json
from dataclasses import asdict, fields
from functools import cache
from typing import Any, get_args

import numpy as np

from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.trace.records.events import Notice, Steered, Telemetry
from engine.trace.records.header import (
    VERSION,
    Header,
    Interconnect,
    Kernels,
    Machine,
    MemoryBreakdown,
    ModelCard,
    Roof,
)
from engine.trace.records.older import GONE, Older
from engine.trace.records.request import Ended, FinishReason, PromptScored, Submitted
from engine.trace.records.step import Step, StepStarted

Record = Header | Submitted | StepStarted | Step | Ended | Telemetry | Notice | Steered | PromptScored
_KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Record)}
_NESTED: dict[str, type] = {"model": ModelCard, "config": EngineConfig, "machine": Machine, "params": SamplingParams}
_NESTED |= {"draft": ModelCard, "roof": Roof, "bill": MemoryBreakdown, "interconnect": Interconnect, "kernels": Kernels}


def encode(record: Record) -> tuple[str, bytes]:
    """A record's kind and bytes: a line of JSON, then its arrays one after another. `decode` is its inverse."""
    scalars: dict[str, Any] = {}
    arrays: list[bytes] = []
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, np.ndarray):
            scalars[f.name] = [value.dtype.str, len(value)]
            arrays.append(value.tobytes())
        elif f.name in _NESTED and value is not None:
            scalars[f.name] = asdict(value)
        else:
            scalars[f.name] = value
    head = json.dumps(scalars, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return type(record).__name__, b"\n".join((head, b"".join(arrays)))


@cache
def _arrays(cls: type) -> frozenset[str]:
    """The fields that are arrays, those of earlier formats too."""
    return frozenset(f.name for f in fields(cls) if f.type == "Array") | GONE


def decode(kind: str, data: bytes, older: Older | None = None) -> Record:
    """The record that `encode` wrote, now or, with `older`, in an earlier format. Raises ValueError when the bytes are
    no record of that format."""
    try:
        cls = _KINDS[kind]
        end = data.index(b"\n")
        values = json.loads(data[:end].decode("utf-8", "surrogatepass"))
        at = end + 1
        arrays = _arrays(cls)
        for name, value in values.items():  # in the order in which they were written
            if name in arrays:
                dtype, length = np.dtype(value[0]), value[1]
                if length < 0:  # which would be all the rest
                    raise ValueError(f"{name} of {length}")
                values[name] = np.frombuffer(data, dtype, length, at)
                at += length * dtype.itemsize
            elif name in _NESTED and value is not None:
                value = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
                values[name] = _NESTED[name](**value)
            elif name == "reason":
                values[name] = FinishReason(value)
            elif isinstance(value, list):
                values[name] = tuple(value)
        if older is not None:
            older(kind, values)
        return cls(**values)
    except Exception as error:  # a damaged line can be anything
        raise ValueError(f"not a record of version {VERSION}: {kind!r} ({str(error)[:200]})") from error
