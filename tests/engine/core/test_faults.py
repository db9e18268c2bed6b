"""What an error of a step is, and what becomes of the engine when its device is lost."""

import gc
import os
import signal
import threading
import traceback
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import Engine, EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.compare import LocalHost
from engine.core.faults import Fault, fault_of, first_line, memory_asked
from engine.models import loading
from engine.models.loading import load
from engine.trace import FinishReason, Notice
from tests.engine.core.child.ending_processes import FOX, LONG, gone
from tests.engine.forwards import Watched
from tests.engine.tiny_models import change_config

CPU = torch.device("cpu")
ILLEGAL = "CUDA error: an illegal memory access was encountered"
HINTS = "\nCUDA kernel errors might be asynchronously reported at some other API call"


def the_error_of(do: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        do()
    return caught.value


def test_what_the_allocator_refuses_is_told_from_other_errors() -> None:
    refused = the_error_of(lambda: torch.empty(1 << 44))
    assert fault_of(refused, CPU) is Fault.MEMORY
    assert memory_asked(refused) == "64.0 TiB more was asked for"
    assert fault_of(MemoryError(), CPU) is Fault.MEMORY
    assert fault_of(the_error_of(lambda: torch.zeros(2) @ torch.zeros(3)), CPU) is Fault.STEP
    assert fault_of(ValueError("not enough memory of what was said"), CPU) is Fault.STEP


def test_a_gpus_allocator_is_understood() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.19 GiB is "
        "free. Including non-PyTorch memory, this process has 77.90 GiB memory in use."
    )
    assert memory_asked(torch.OutOfMemoryError(text)) == "2.00 GiB more was asked for, 1.19 GiB was free"


@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
def test_an_error_of_cuda_after_which_nothing_answers_is_the_devices(kind: type[Exception]) -> None:
    error = kind(ILLEGAL + HINTS)
    assert fault_of(error, CPU) is Fault.DEVICE, "no CUDA answers here"
    assert first_line(error) == ILLEGAL


def test_an_engine_whose_device_is_lost_says_so_and_ends() -> None:
    with Engine(ModelSpec("demo-draft"), EngineConfig(max_running=4, depth=1), threads=1) as engine:
        forwards = 0

        def lose(_: torch.Tensor) -> None:
            nonlocal forwards
            forwards += 1
            if forwards == 5:
                raise torch.AcceleratorError(ILLEGAL + HINTS)

        engine.begin(engine.config)
        Watched(engine, after=lose)
        streams = engine.submit_many([Submission(FOX, LONG)] * 2)
        for stream in streams:
            completion = stream.result(timeout=20)
            assert completion.finish_reason is FinishReason.ERROR
            assert completion.error == f"the GPU reported an unrecoverable error ({ILLEGAL})"
            assert completion.text, "what was said is kept"
        engine._thread.join(timeout=60)
        assert (engine.alive, engine.lost, engine.restart) == (False, True, False)
        assert [n.text for n in engine.trace.records if isinstance(n, Notice)] == [streams[0].result().error]
        assert engine.trace.complete
        with pytest.raises(InvalidInput, match="the GPU reported an unrecoverable error"):
            engine.submit(FOX, LONG)


def lose_the_gpu(*_: object) -> None:
    raise torch.AcceleratorError(ILLEGAL + HINTS)


@pytest.fixture
def lost_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says of a GPU in a process that has lost it."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lose_the_gpu)


@pytest.mark.usefixtures("lost_gpu")
@pytest.mark.timeout(60)
def test_a_load_that_loses_the_gpu_ends_with_what_the_gpu_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "aminmax", lose_the_gpu)  # of each weight
    with pytest.raises(torch.AcceleratorError, match=ILLEGAL):
        Engine(ModelSpec("demo-draft", device="cpu"), threads=1)


@pytest.mark.usefixtures("lost_gpu")
def test_a_load_that_loses_the_gpu_frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "device_for", lambda asked: (torch.device("cuda", 0), ""))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    with pytest.raises(torch.AcceleratorError) as caught:
        load(ModelSpec("demo-draft", device="cuda"), report=lose_the_gpu)
    held = [name for frame, _ in traceback.walk_tb(caught.value.__traceback__) for name in frame.f_locals]
    assert "begun" in held, "the variables of what failed are still there"


@pytest.mark.usefixtures("lost_gpu")
def test_an_engine_that_lost_the_gpu_frees_nothing() -> None:
    with Engine(ModelSpec("demo-draft", device="cpu"), EngineConfig(max_running=4, depth=1), threads=1) as engine:
        stream, runner, model = engine.submit(FOX, LONG), weakref.ref(engine.runner), weakref.ref(engine.model.module)
        next(iter(stream))
        Watched(engine, after=lose_the_gpu)
        assert stream.result(timeout=20).error == f"the GPU reported an unrecoverable error ({ILLEGAL})"
        engine._thread.join(timeout=60)
        assert engine.lost
    del engine, stream
    gc.collect()
    assert runner() is not None
    assert model() is not None


def test_a_process_on_a_gpu_that_aborts_has_lost_it() -> None:
    with EngineProcess(ModelSpec("demo-draft"), EngineConfig(max_running=4), threads=1) as engine:
        engine.card = replace(engine.card, device="cuda:0")
        os.kill(engine.pid, signal.SIGABRT)
        engine._receiver.join(timeout=60)
        assert (engine.alive, engine.restart) == (False, True)
        assert "SIGABRT" in engine.error


def test_a_host_whose_engine_lost_the_device_loads_no_other() -> None:
    spec, config = ModelSpec("demo-draft"), EngineConfig(max_running=4)

    def lose(_: torch.Tensor) -> None:
        raise RuntimeError(ILLEGAL)

    with LocalHost(threads=1) as host:
        engine = host.open(spec, config, print, threading.Event())
        assert isinstance(engine, Engine)
        Watched(engine, after=lose)
        assert engine.submit(FOX, LONG).result(timeout=20).finish_reason is FinishReason.ERROR
        engine._thread.join(timeout=60)
        with pytest.raises(RuntimeError, match="nothing can be loaded in this process any more"):
            host.open(spec, config, print, threading.Event())


LOSING = '''
import torch
from transformers import LlamaForCausalLM

class Losing(LlamaForCausalLM):
    """Says of token 3000 what a driver says of a kernel that wrote where it must not."""

    def forward(self, input_ids=None, **kwargs):
        if bool((input_ids == 3000).any()):
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\\nmore")
        return super().forward(input_ids=input_ids, **kwargs)
'''


def test_a_process_that_lost_the_device_tells_its_parent_to_start_another(demo_copy: Path) -> None:
    (demo_copy / "losing.py").write_text(LOSING)
    change_config(demo_copy, auto_map={"AutoModelForCausalLM": "losing.Losing"})
    spec = ModelSpec(str(demo_copy), trust_remote_code=True)
    with EngineProcess(spec, EngineConfig(max_running=4), threads=1) as engine:
        running = engine.submit(FOX, LONG)
        next(iter(running))
        assert not engine.restart
        lost = engine.submit([5, 3000, 7], SamplingParams(max_tokens=4))
        for stream in (running, lost):
            assert stream.result(timeout=20).finish_reason is FinishReason.ERROR
            assert stream.result().error == f"the GPU reported an unrecoverable error ({ILLEGAL})"
        assert running.result().text
        assert gone(engine.pid)
        engine._receiver.join(timeout=60)
        assert engine.restart
        assert not engine.alive
        assert engine.error == lost.result().error
