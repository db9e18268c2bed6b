"""A step from plain numbers, for traces that no engine recorded: made-up ones, and those that are written by hand."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from engine.trace.records import Kind, Step, freeze

COLUMNS = frozenset(f.name for f in fields(Step) if f.type == "Array")
Given = dict[str, Any]  # fields by their names
DTYPES: Given = {f.name: f.default_factory().dtype for f in fields(Step) if callable(f.default_factory)}
DTYPES |= {"kind": np.uint8, "logprob": np.float32}  # of columns that every step has


def built_step(
    step: int,
    started: float,
    ended: float,
    request: Sequence[int],
    texts: Sequence[str] = (),
    blocks: Sequence[tuple[int, int, int, int]] = (),
    **given: Any,
) -> Step:
    """The other fields of a `Step` by their names, columns as any numbers; `texts` of its tokens; what happened to
    `blocks`: event, block, its owner, its place there.

    What is not given: rows decode one token each in slots 0, 1, …; the first rows emit the tokens, of id 0 and of
    probability 1; all time is in the forward pass; nothing waits, and no block is free.
    """
    zeros, tokens = [0] * len(request), [0] * len(given.get("token", texts))
    event, block, owner, place = zip(*blocks) if blocks else ((), (), (), ())
    values: Given = {"request": request, "branch": zeros, "slot": range(len(request)), "first": zeros}
    values |= {"count": [1] * len(request), "kind": [Kind.DECODE] * len(request), "wasted": zeros, "padding": zeros}
    values |= {"token_row": range(len(tokens)), "token": tokens, "logprob": tokens}
    values |= {"text": "".join(texts), "text_end": np.cumsum([len(text) for text in texts] or tokens)}
    values |= {"block_event": event, "block": block, "block_request": owner, "block_place": place}
    values |= {"block_branch": [0] * len(block), "running": len(request), "waiting": 0, "free_blocks": 0}
    values |= {"seconds": {"forward": ended - started}} | given
    columns = {name: freeze(np.array(values[name], DTYPES.get(name, np.int32))) for name in COLUMNS & values.keys()}
    return Step(step, started, ended, **(values | columns))
