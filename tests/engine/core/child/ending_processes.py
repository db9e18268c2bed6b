"""Engines in processes of their own, on their way to an end of any kind."""

import contextlib
import os
import time
from typing import Any

import psutil

from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams, Stream, Submission
from engine.trace import FinishReason

TIMES = 5
DRAFT = ModelSpec("demo-draft")  # loads fastest
SMALL = EngineConfig(max_running=4, token_budget=512)
FOX: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
SHORT = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
LONG = SamplingParams(max_tokens=900, temperature=0, ignore_eos=True)


def gone(pid: int, within: float = 10) -> bool:
    """True when no process of this id is left, nor a zombie of it."""
    deadline = time.monotonic() + within
    while psutil.pid_exists(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE and psutil.Process(pid).ppid() != os.getpid():
                return True  # left to the system's first process to collect
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def busy() -> tuple[EngineProcess, Stream, list[Stream]]:
    """An engine with one request that is over, four that run and have said something, and two that wait."""
    engine = EngineProcess(DRAFT, SMALL, threads=1)
    over = engine.submit(FOX, SHORT)
    over.result(timeout=60)
    open_ones = engine.submit_many([Submission(FOX, LONG) for _ in range(6)])
    for stream in open_ones[:4]:
        next(iter(stream))
    return engine, over, open_ones


def check_texts(engine: EngineProcess, over: Stream, open_ones: list[Stream], reason: FinishReason) -> None:
    """All streams have ended, and the trace has kept what they said."""
    for stream in open_ones:
        completion = stream.result(timeout=60)
        view = engine.trace.requests[stream.request]
        assert completion.finish_reason is view.reason is reason
        assert completion.text == view.text
        assert completion.error == view.error
    assert all(stream.result().text for stream in open_ones[:4])
    assert not any(stream.result().text for stream in open_ones[4:])
    assert over.result().finish_reason is FinishReason.LENGTH
    assert engine.trace.requests[over.request].text == over.result().text
    assert engine.trace.complete
    assert not engine.alive
