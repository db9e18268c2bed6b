"""Traces made by hand, whose measures can be worked out on paper."""

import numpy as np

from engine.bench.trace.step_builder import built_step
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.trace.records import Ended, FinishReason, Header, Kind, Machine, ModelCard, Notice, Record, Step, Submitted
from engine.trace.trace import Trace

P, D, H = Kind.PREFILL, Kind.DECODE, Kind.HELD
CARD = ModelCard("a model", "made", "Llama", 1, 1, 1, 1, 1, 1, 99, 99, "float32", "cpu", "none", 4, 8, False)


def header(config: EngineConfig) -> Header:
    return Header(CARD, config, Machine("a machine", 2, 1 << 30, 1), {}, 0.0, 64, 0)


def notices(count: int) -> list[Record]:
    """So many records: a run begins with its header."""
    return [header(EngineConfig()), *(Notice(float(i), "info", f"number {i}") for i in range(1, count))]


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
    texts: list[str] | None = None,
) -> Step:
    """Rows of (request, first, count, kind); `tokens` and `wasted` by row; `alternatives` of (index into the tokens,
    id, log-probability); `kv` used, reserved, internal, external. A token's text is its number and a space, unless
    `texts` has others."""
    tokens, wasted = tokens or {}, wasted or {}
    request, first, count, kind = zip(*rows) if rows else ((), (), (), ())
    size = range(len(rows))
    columns = {"first": first, "count": count, "kind": kind, "wasted": [wasted.get(i, 0) for i in size]}
    columns |= {
        "branch": branches or [0 for _ in size],
        "padding": padding or [0 for _ in size],
        "preempted": preempted,
    }
    columns |= {"token_row": list(tokens), "token": list(tokens.values()), "logprob": logprobs or [0.0] * len(tokens)}
    columns |= dict(zip(("alt_token_index", "alt_token", "alt_logprob"), zip(*alternatives)))
    pool = dict(zip(("kv_used", "kv_reserved", "kv_internal", "kv_external"), kv))
    seconds = {"forward": 0.8 * (ended - started), "sample": 0.2 * (ended - started)}
    texts = texts or [f"{token} " for token in tokens.values()]
    given = {**columns, **pool, "free_blocks": 9, "seconds": seconds}
    return built_step(number, started, ended, request, texts, **given)


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


def two_sends() -> list[Record]:
    """A request from 1 to 3 s, one with two samples from 63 to 66 s: 60 s idle."""
    held, full = (10, 30, 0, 0), (40, 0, 0, 0)
    return [
        submitted(1.0, 0, 2),
        step(0, 1.0, 2.0, [(0, 0, 2, P)], {0: 1}, kv=held),
        step(1, 2.0, 3.0, [(0, 2, 1, D)], {0: 1}, kv=held),
        ended(3.0, 0),
        submitted(63.0, 1, 2, n=2),
        step(2, 63.0, 65.0, [(1, 0, 2, P), (1, 0, 2, P)], {0: 1, 1: 1}, branches=(0, 1), kv=full),
        ended(65.0, 1),
        step(3, 65.0, 66.0, [(1, 2, 1, D)], {0: 1}, branches=(1,), kv=full),
        ended(66.0, 1, branch=1),
    ]
