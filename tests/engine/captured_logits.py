"""The logits that an engine computed, as its model put them out, by request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from engine import Engine, EngineConfig, SamplingParams, Trace
from engine.core import Completion
from engine.trace import Kind, Step, StepStarted
from tests.engine.forwards import Watched


class CapturedLogits:
    """Watches an engine's model from `begin` on. `by_request` reads the trace to tell whose row is whose.

    `on_step` is called on the engine's thread with the number of forwards so far: a test cancels there, to the step.
    """

    def __init__(self, engine: Engine, config: EngineConfig, on_step: Any = None) -> None:
        self.trace: Trace = engine.begin(config)
        self._steps: list[Tensor] = []
        self._on_step = on_step
        self._handle = Watched(engine, after=self._keep)

    def _keep(self, logits: Tensor) -> None:
        self._steps.append(logits.float().clone())
        if self._on_step is not None:
            self._on_step(len(self._steps))

    def __enter__(self) -> CapturedLogits:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._handle.remove()

    def by_request(self) -> dict[int, Tensor]:
        """The logits `[tokens, vocabulary]` that each request's emitted tokens were chosen from."""
        launched = [r.step for r in self.trace.records if isinstance(r, StepStarted)]
        assert len(launched) == len(self._steps), "every launched step is one forward"
        logits = dict(zip(launched, self._steps))
        known = {i: len(view.prompt_ids) for i, view in self.trace.requests.items()}
        rows: dict[int, list[Tensor]] = defaultdict(list)
        for record in self.trace.records:
            if not isinstance(record, Step) or record.step not in logits:
                continue
            emitted, at = set(record.token_row.tolist()), 0
            for row, request in enumerate(record.request.tolist()):
                end = int(record.first[row] + record.count[row])
                if row in emitted:
                    rows[request].append(logits[record.step][at])
                    known[request] += 1
                elif record.kind[row] == Kind.PREFILL and end < known[request]:
                    continue  # a part of a prompt: it has no logits
                at += 1
            assert at == len(logits[record.step]), "as many rows of logits as rows that sample"
        return {request: torch.stack(found) for request, found in rows.items()}


def answers(
    engine: Engine, config: EngineConfig, prompts: Sequence[list[int]], params: SamplingParams, stopped: int = -1
) -> tuple[Trace, list[Completion], list[Tensor]]:
    """What prompts that are sent together get under `config`, and each one's logits, as far as rows of a forward are
    the requests' own. The one at the place `stopped` is cancelled after 14 forwards."""

    def stop_one(forwards: int) -> None:
        if forwards == 14 and stopped >= 0:
            engine.cancel([streams[stopped].request])

    with CapturedLogits(engine, config, stop_one) as captured:
        streams = [engine.submit(prompt, params) for prompt in prompts]
        completions = [stream.result(timeout=60) for stream in streams]
        logits = captured.by_request() if config.paged else {}
    return captured.trace, completions, [logits.get(c.request, torch.empty(0)) for c in completions]
