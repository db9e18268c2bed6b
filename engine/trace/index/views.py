"""Requests as bytes, each by itself: of thousands, only those that are looked at are made.

Their times are places in one `clock`, since most tokens come with a step: packed, they take next to nothing.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from engine.config.sampling_params import SamplingParams
from engine.trace.column import Array
from engine.trace.index.frozen import Adapter
from engine.trace.records import FinishReason, freeze
from engine.trace.requests import RequestIndex, RequestView, SampleView, State

TIMES = ("token_times", "_mark_times")
COLUMNS = ("tokens", "logprobs", *TIMES, "text_ends", "drafted", "_marks")
LEVEL = 1  # of zlib
NUMBERS = ("branch", "ended", "error", "computed", "reused", "slot", "tail", "score")


def pack_view(view: RequestView, clock: Array) -> bytes:
    """A line of JSON, then the columns one after another. `clock` has all times of the view, rising."""
    samples, columns = [], [np.ascontiguousarray(view.prompt_ids).tobytes()]
    for sample in view.samples:
        told = {name: getattr(sample, name) for name in NUMBERS}
        told |= {"state": sample.state.value, "reason": sample.reason and sample.reason.value, "text": sample.text}
        of_sample = [getattr(sample, name) for name in COLUMNS]
        told["columns"] = [[column.typecode, len(column)] for column in of_sample]
        samples.append(told)
        columns += [_packed(name, column, clock) for name, column in zip(COLUMNS, of_sample)]
    head = {
        "request": view.request,
        "submitted": view.submitted,
        "prompt": view.prompt,
        "ids": [view.prompt_ids.dtype.str, len(view.prompt_ids)],
        "params": asdict(view.params),
        "messages": view.messages,
        "label": view.label,
        "scheduled": view.scheduled,
        "preemptions": view.preemptions,
        "samples": samples,
    }
    return zlib.compress(json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"".join(columns), LEVEL)


def _packed(name: str, column: array[Any], clock: Array) -> bytes:
    if name not in TIMES:
        return column.tobytes()
    places = np.searchsorted(clock, column).astype(np.int32)
    return np.diff(places, prepend=np.int32(0)).tobytes()


def unpack_view(packed: bytes, clock: Array) -> RequestView:
    """Raises ValueError at what `pack_view` cannot have given."""
    try:
        data = zlib.decompress(packed)
        end = data.index(b"\n")
        head, rest = json.loads(data[:end]), memoryview(data)[end + 1 :]
        code, length = head.pop("ids")
        size = np.dtype(code).itemsize * length
        head["prompt_ids"] = freeze(np.frombuffer(rest[:size], code))
        rest = rest[size:]
        params: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in head.pop("params").items()}
        samples = []
        for told in head.pop("samples"):
            columns: dict[str, Any] = {}
            for name, (code, length) in zip(COLUMNS, told.pop("columns"), strict=True):
                column: array[Any] = array(code)
                size = length * (4 if name in TIMES else column.itemsize)
                part, rest = rest[:size], rest[size:]
                if name in TIMES:
                    column.frombytes(clock[np.cumsum(np.frombuffer(part, np.int32))].tobytes())
                else:
                    column.frombytes(part)
                columns[name] = column
            reason, text = told.pop("reason"), told.pop("text")
            told |= {"state": State(told["state"]), "reason": FinishReason(reason) if reason else None}
            samples.append(SampleView(**told, parts=[text] if text else [], **columns))
        messages = tuple(head.pop("messages"))
        return RequestView(**head, params=SamplingParams(**params), messages=messages, samples=samples)
    except Exception as error:  # damaged bytes can be anything
        raise ValueError(f"no request of an index: {type(error).__name__} {error}") from error


class KeptRequests(Mapping[int, RequestView]):
    """Requests by id in order of submission; each is made when it is first asked for, and then stays."""

    def __init__(self, ids: list[int], ends: Array, data: Array, clock: Array) -> None:
        self._place = {request: place for place, request in enumerate(ids)}
        self._ends, self._data, self._clock = ends, data, clock
        self._made: dict[int, RequestView] = {}

    def __getitem__(self, request: int) -> RequestView:
        view = self._made.get(request)
        if view is None:
            place = self._place[request]
            view = self._made[request] = unpack_view(self._packed(place), self._clock)
        return view

    def _packed(self, place: int) -> bytes:
        begin = int(self._ends[place - 1]) if place else 0
        return self._data[begin : int(self._ends[place])].tobytes()

    def __contains__(self, request: object) -> bool:
        return request in self._place

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)


def _pack(index: RequestIndex) -> dict[str, Any]:
    samples = [sample for view in index.requests.values() for sample in view.samples]
    times = [np.array(getattr(sample, name)) for sample in samples for name in TIMES]
    clock = np.unique(np.concatenate([np.zeros(0), *times]))
    packed = [pack_view(view, clock) for view in index.requests.values()]
    ends = np.cumsum([len(each) for each in packed], dtype=np.int64)
    data = np.frombuffer(b"".join(packed), np.uint8)
    submitted, ids = index.order
    kept = {"requests": list(index.requests), "ends": ends, "data": data, "clock": clock}
    return {**kept, "submitted": submitted, "ids": ids}


def _unpack(index: RequestIndex, told: dict[str, Any]) -> None:
    requests, ends, data = told["requests"], told["ends"], told["data"]
    rising = bool((np.diff(ends, prepend=0) > 0).all()) and (int(ends[-1]) if len(ends) else 0) == len(data)
    if not (rising and len(ends) == len(requests) == len(told["submitted"]) and set(requests) == set(told["ids"])):
        raise ValueError("no index: requests that do not fit together")
    index.restore(KeptRequests(requests, ends, data, told["clock"]), told["submitted"], told["ids"])


REQUESTS: dict[type, Adapter] = {RequestIndex: Adapter(_pack, _unpack)}
