"""Traces made by hand, whose measures can be worked out on paper."""

from __future__ import annotations

import numpy as np

from engine.config.specs import EngineConfig, SamplingParams
from engine.trace.records import Ended, FinishReason, Header, Kind, Machine, ModelCard, Step, Submitted
from engine.trace.trace import Trace

P, D, H = Kind.PREFILL, Kind.DECODE, Kind.HELD
CARD = ModelCard("a model", "made", "Llama", 1, 1, 1, 1, 1, 1, 99, 99, "float32", "cpu", "none", 4, 8, False)


def header(config: EngineConfig) -> Header:
    return Header(CARD, config, Machine("a machine", 2, 1 << 30, 1), {}, 0.0, 64, 0)


def ended(time: float, request: int, reason: FinishReason = FinishReason.LENGTH, branch: int = 0) -> Ended:
    return Ended(time, request, reason, branch=branch)


def submitted(time: float, request: int, prompt: int, n: int = 1) -> Submitted:
    return Submitted(time, request, "a fox", np.arange(prompt, dtype=np.int32), SamplingParams(n=n, temperature=0))


def step(
    number: int,
    started: float,
    ended: float,
    rows: list[tuple[int, int, int, Kind]],
    tokens: dict[int, int] | None = None,
    wasted: dict[int, int] | None = None,
    preempted: tuple[int, ...] = (),
    branches: tuple[int, ...] = (),
    padding: tuple[int, ...] = (),
    kv: tuple[int, int, int, int] = (0, 0, 0, 0),
    logprobs: tuple[float, ...] = (),
    alternatives: tuple[tuple[int, int, float], ...] = (),
) -> Step:
    """Rows of (request, first, count, kind); `tokens` and `wasted` by row; `alternatives` of (index into the tokens,
    id, log-probability); `kv` used, reserved, internal, external. A token's text is its number and a space."""
    tokens, wasted = tokens or {}, wasted or {}
    texts = [f"{token} " for token in tokens.values()]
    columns = list(zip(*rows)) if rows else [(), (), (), ()]

    def ints(values: object) -> np.ndarray:
        return np.array(values, np.int32)

    return Step(
        step=number, started=started, ended=ended, request=ints(columns[0]), branch=ints(branches or [0] * len(rows)),
        slot=ints(range(len(rows))), first=ints(columns[1]), count=ints(columns[2]), kind=ints(columns[3]),
        wasted=ints([wasted.get(i, 0) for i in range(len(rows))]), token_row=ints(list(tokens)),
        token=ints(list(tokens.values())),
        logprob=np.array(logprobs or [0.0] * len(tokens), np.float32), text="".join(texts),
        text_end=ints(np.cumsum([len(t) for t in texts])), running=len(rows), waiting=0, free_blocks=9,
        seconds={"forward": 0.8 * (ended - started), "sample": 0.2 * (ended - started)}, preempted=ints(preempted),
        padding=ints(padding or [0] * len(rows)), kv_used=kv[0], kv_reserved=kv[1], kv_internal=kv[2],
        kv_external=kv[3],
        alt_token_index=ints([a[0] for a in alternatives]), alt_token=ints([a[1] for a in alternatives]),
        alt_logprob=np.array([a[2] for a in alternatives], np.float32),
    )  # fmt: skip


def static_batch(prompts: list[int], new: list[int]) -> Trace:
    """One static batch of all requests, a second a step: a prefill, padded to the longest prompt, then decodes until
    the longest is done; a row that is done is computed on. Slots as many as requests."""
    size, longest = len(prompts), max(prompts)
    trace = Trace(
        [header(EngineConfig(mode="static", max_running=size)), *(submitted(0.0, i, p) for i, p in enumerate(prompts))]
    )
    for number in range(max(new)):
        rows, wasted = [], {}
        for i, prompt in enumerate(prompts):
            done = number >= new[i]
            rows.append((i, prompt + number - 1, 1, H if done else D) if number else (i, 0, prompt, P))
            wasted |= {i: 1} if done else {}
        trace.append(
            step(
                number, float(number), number + 1.0, rows, {i: 7 for i in range(size) if number < new[i]}, wasted,
                padding=tuple(longest - p for p in prompts) if number == 0 else (),
            )
        )  # fmt: skip
        for i in range(size):
            if new[i] == number + 1:
                trace.append(ended(number + 1.0, i))
    return trace
