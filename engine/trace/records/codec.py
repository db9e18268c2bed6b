"""Records as bytes, and back."""

import json
from dataclasses import asdict, fields
from typing import Any, get_args

import numpy as np

from engine.config.specs import EngineConfig, SamplingParams
from engine.trace.records.events import Notice, Steered, Telemetry
from engine.trace.records.header import VERSION, Header, Machine, MemoryBreakdown, ModelCard, Roof
from engine.trace.records.request import Ended, FinishReason, PromptScored, Submitted
from engine.trace.records.step import Step, StepStarted

Record = Header | Submitted | StepStarted | Step | Ended | Telemetry | Notice | Steered | PromptScored
_KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Record)}
_NESTED: dict[str, type] = {"model": ModelCard, "config": EngineConfig, "machine": Machine, "params": SamplingParams}
_NESTED |= {"draft": ModelCard, "roof": Roof, "bill": MemoryBreakdown}


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


def decode(kind: str, data: bytes) -> Record:
    """The record that `encode` wrote. Raises ValueError when the bytes are no record of this version."""
    try:
        cls = _KINDS[kind]
        end = data.index(b"\n")
        values = json.loads(data[:end].decode("utf-8", "surrogatepass"))
        at = end + 1
        for f in fields(cls):
            if f.name not in values:
                continue
            value = values[f.name]
            if f.name in _NESTED and value is not None:
                value = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
                values[f.name] = _NESTED[f.name](**value)
            elif f.type == "Array":
                dtype, length = np.dtype(value[0]), value[1]
                if length < 0:  # which would be all the rest
                    raise ValueError(f"{f.name} of {length}")
                values[f.name] = np.frombuffer(data, dtype, length, at)
                at += length * dtype.itemsize
            elif f.name == "reason":
                values[f.name] = FinishReason(value)
            elif isinstance(value, list):
                values[f.name] = tuple(value)
        return cls(**values)
    except Exception as error:  # a damaged line can be anything
        raise ValueError(f"not a record of version {VERSION}: {kind!r} ({str(error)[:200]})") from error
