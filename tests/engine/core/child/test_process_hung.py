"""A child that is stopped, or told nonsense, keeps nobody waiting."""

import enum
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import engine.core.child.process
from engine import EngineProcess, InvalidInput, Submission
from engine.core.child.process import EngineDied
from engine.trace import FinishReason, Submitted
from tests.engine.core.child.ending_processes import DRAFT, LONG, SHORT, SMALL, gone


class Colour(enum.StrEnum):
    RED = "red"


Colour.__module__, Colour.__qualname__ = "__main__", "Colour"  # as in a script: no child could import it


def test_a_label_of_the_scripts_own_type_is_taken_as_the_text_it_is_and_another_is_refused() -> None:
    with EngineProcess(DRAFT, SMALL, threads=1) as process:
        assert process.submit("Once", SHORT, Colour.RED).result(timeout=20).finish_reason is FinishReason.LENGTH
        assert [r.label for r in process.trace.records if isinstance(r, Submitted)] == ["red"]
        with pytest.raises(InvalidInput, match="label=<object object"):
            process.submit("Once", SHORT, object())  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"request=\[1\]: must be a whole number"):
            process.cancel([[1]])  # type: ignore[list-item]
        assert process.submit("Once", SHORT).result(timeout=20).finish_reason is FinishReason.LENGTH


def test_a_child_that_cannot_read_what_it_is_told_ends_with_words() -> None:
    process = EngineProcess(DRAFT, SMALL, threads=1)
    stream = process.submit("Once", LONG)
    process._outbox.put(b"c__main__\nColour\n.")  # a pickle that names it
    assert stream.result(timeout=20).finish_reason is FinishReason.ERROR
    assert process.error.startswith("what it was told cannot be read: AttributeError: ")
    process.close()
    assert gone(process.pid)


def test_a_stopped_child_holds_up_neither_cancel_nor_close_and_a_call_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = EngineProcess(DRAFT, SMALL, threads=1)
    stream = process.submit("Once", LONG)
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(engine.core.child.process, "SILENCE", 2.0)  # only now: a child that is slow is not stopped
    began = time.monotonic()
    with pytest.raises(EngineDied, match="said nothing for 2 s and was ended"):
        process.submit_many([Submission("Once there was a fox " * 100, SHORT) for _ in range(2000)])
    assert time.monotonic() - began < 30
    assert stream.result(timeout=60).finish_reason is FinishReason.ERROR
    process.close()
    assert gone(process.pid)

    monkeypatch.setattr(engine.core.child.process, "SILENCE", 60.0)
    process = EngineProcess(DRAFT, SMALL, threads=1)
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(engine.core.child.process, "SILENCE", 10.0)  # a close waits for a tenth of it
    began = time.monotonic()
    for _ in range(20_000):
        process.cancel([1, 2, 3])
    process.close()
    assert time.monotonic() - began < 30
    assert gone(process.pid)


ROOT = Path(__file__).parents[4]
FROZEN = """
import sys, threading
import engine.core.child.process
from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams
engine.core.child.process.SILENCE = 2.5
over = threading.Event()
with EngineProcess(ModelSpec("demo-draft"), EngineConfig(max_running=2, token_budget=64), threads=1) as process:
    print(process.pid, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while process.alive and not over.is_set():
        process.submit("Once", SamplingParams(max_tokens=1)).result()
    print(process.error or "alive", flush=True)
"""


def test_where_both_were_frozen_together_they_go_on() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FROZEN], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        both = parent.pid, int(parent.stdout.readline())
        try:
            time.sleep(0.3)
            for pid in reversed(both):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.3)  # the parent waits for an answer when its turn comes
            time.sleep(3)
            for pid in both:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.5)  # the parent is awake first
            said, _ = parent.communicate(timeout=30)
        except BaseException:
            parent.kill()
            raise
    assert said.split() == ["alive"]
    assert parent.returncode == 0
