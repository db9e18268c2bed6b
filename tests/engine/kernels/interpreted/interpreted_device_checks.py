"""Kernels are launched on the GPU of their tensors, whatever the thread's: run by `test_interpreted.py`.

CPU tensors stand for those of a second GPU: they say that they are on cuda:1, and the current device of each thread is
kept here instead of in a driver. All else is real.
"""

import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from triton.runtime import interpreter

from engine.config.specs import ModelSpec
from engine.kernels.store_kv import store_kv
from engine.models import loading
from engine.models.device import trial
from engine.models.fusion.fuse import fuse
from engine.quality.measure import Window, Yardstick
from tests.engine.fusing_case import FUSED, by_kernel, logits, served

CPU, SECOND = torch.device("cpu"), torch.device("cuda:1")


class OnTheSecond(TorchFunctionMode):
    """Every tensor says that it is on cuda:1; what is made there is made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == Tensor.device.__get__:
            return SECOND
        made = {name: CPU if isinstance(value, torch.device) else value for name, value in (kwargs or {}).items()}
        return func(*(CPU if isinstance(value, torch.device) else value for value in args), **made)


@pytest.fixture
def launched_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread's current device at each launch; every thread begins with the first."""
    mine, found = threading.local(), list[int]()

    def exchange(index: int) -> int:
        before, mine.device = current(), index
        return before

    def current() -> int:
        return getattr(mine, "device", 0)

    own = interpreter.GridExecutor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(current())
        return own(self, *args, **kwargs)

    monkeypatch.setattr(torch.cuda, "current_device", current)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: exchange(torch.device(device).index))
    monkeypatch.setattr(torch.cuda, "_exchange_device", exchange)
    monkeypatch.setattr(torch.cuda, "_maybe_exchange_device", exchange)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", call)
    return found


def elsewhere(do: Callable[[], Any]) -> Any:
    """What `do` returns in a thread of its own, on tensors of the second GPU."""

    def there() -> Any:
        with OnTheSecond():
            return do()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(there).result()


def test_a_thread_of_its_own_launches_where_the_tensors_are(launched_on: list[int]) -> None:
    k, cache, slots = torch.ones(1, 1, 32), torch.zeros(1, 1, 1, 32), torch.zeros(1, dtype=torch.int64)
    elsewhere(lambda: store_kv(k, k, cache, cache, slots))
    assert torch.equal(cache, k[None])
    assert launched_on == [1]
    store_kv(k, k, cache, cache, slots)
    assert launched_on == [1, 0], "the thread that was here before has its own"


def test_the_first_launch_of_a_load_is_where_the_model_will_be(launched_on: list[int]) -> None:
    assert elsewhere(lambda: trial(SECOND)) == ""
    assert launched_on == [1]


def test_a_model_is_loaded_with_its_device_as_the_threads(
    launched_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "device_for", lambda asked: (SECOND, ""))
    monkeypatch.setattr(loading, "_load", lambda *_: SimpleNamespace(on=torch.cuda.current_device()))
    assert loading.load(ModelSpec()).on == 1
    assert torch.cuda.current_device() == 0


def test_a_ranks_part_is_read_with_its_device_as_the_threads_for_good(
    launched_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def device_for(asked: str) -> tuple[torch.device, str]:
        tried.append(torch.cuda.current_device())
        return SECOND, ""

    monkeypatch.setattr(loading, "device_for", device_for)
    monkeypatch.setattr(loading, "_read", lambda *_: SimpleNamespace(on=torch.cuda.current_device()))
    place: Any = SimpleNamespace(device="cuda:1")
    assert loading.load_part(ModelSpec(), Path(), place).on == 1
    assert tried == [1], "the first launch is there too"
    assert torch.cuda.current_device() == 1


def test_quality_is_read_with_the_models_device_as_the_threads(launched_on: list[int]) -> None:
    """Some of a model's kernels are other libraries', which launch on the thread's."""
    on: list[int] = []

    class Module:
        def set_attn_implementation(self, name: str) -> None:
            pass

        def __call__(self, input_ids: Tensor, **_: object) -> SimpleNamespace:
            on.append(torch.cuda.current_device())
            return SimpleNamespace(logits=torch.zeros(1, input_ids.shape[1], 5))

    model: Any = SimpleNamespace(device=SECOND, module=Module())
    with tempfile.TemporaryFile() as file:
        yardstick = Yardstick("", 3, 4, file)
        yardstick.windows = [Window([1, 2, 3, 4], [True] * 3)]
        elsewhere(lambda: yardstick.read(model, lambda *_: None, original=True))
    assert on == [1]


def test_a_fused_model_is_proved_and_read_where_it_is_in_any_thread(launched_on: list[int]) -> None:
    module = served("llama")
    fusion = elsewhere(lambda: fuse(module))
    assert by_kernel(fusion) == FUSED["llama"], fusion.text
    proved = len(launched_on)
    elsewhere(lambda: logits(module))  # as quality is measured
    assert len(launched_on) > proved > 0
    assert set(launched_on) == {1}
