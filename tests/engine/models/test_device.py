"""Where a model is loaded: decided from the cards that are here and a first launch, before a weight is read."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine import InvalidInput, ModelSpec
from engine.core.engine import Engine
from engine.kernels.needs import Toolchain
from engine.models import device as of_models
from engine.models import loading
from engine.models.device import CPU, Card, choose, device_for, trial
from engine.trace import Notice

OLD, NEW = Card("Tesla T4", (7, 5)), Card("L4", (8, 9))
NO_GCC = "Triton cannot start a kernel here: it finds no C compiler"


def fine(device: torch.device) -> str:
    return ""


def broken(device: torch.device) -> str:
    return NO_GCC


@pytest.mark.parametrize(
    ("asked", "cards", "tried", "device", "notice"),
    [
        ("cpu", [NEW], broken, "cpu", ""),
        ("auto", [], fine, "cpu", ""),
        ("auto", [NEW], fine, "cuda:0", ""),
        ("auto", [NEW], broken, "cpu", NO_GCC),
        ("auto", [OLD], fine, "cpu", "Tesla T4 has compute capability 7.5"),
        ("auto", [OLD, NEW], fine, "cuda:1", ""),
        ("cuda", [NEW, NEW], fine, "cuda:0", ""),
        ("cuda:1", [OLD, NEW], fine, "cuda:1", ""),
    ],
)
def test_auto_takes_a_card_that_works_and_says_why_it_takes_none(
    asked: str, cards: list[Card], tried: Callable[[torch.device], str], device: str, notice: str
) -> None:
    chosen, said = choose(asked, cards, tried)
    assert str(chosen) == device
    assert said.startswith(f"the model runs on the CPU: {notice}") if notice else said == ""


@pytest.mark.parametrize(
    ("asked", "cards", "tried", "said"),
    [
        ("cuda", [], fine, "no CUDA GPU is usable"),
        ("cuda:2", [NEW, NEW], fine, "has 2 GPU"),
        ("cuda", [OLD, NEW], fine, "Tesla T4 has compute capability 7.5"),
        ("cuda:0", [NEW], broken, NO_GCC),
    ],
)
def test_a_gpu_that_was_named_and_cannot_be_used_is_refused(
    asked: str, cards: list[Card], tried: Callable[[torch.device], str], said: str
) -> None:
    with pytest.raises(InvalidInput, match=f"device='{asked}': .*{said}"):
        choose(asked, cards, tried)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a kernel starts on this machine's GPU")
def test_a_launch_that_fails_is_told_and_raises_nothing() -> None:
    assert "Triton" in trial(CPU)  # without its interpreter it has no driver for one


def test_a_launch_that_fails_names_what_the_machine_lacks_and_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(of_models, "store_kv", fails)
    monkeypatch.setattr(Toolchain, "here", lambda: Toolchain(None, str(tmp_path), tmp_path))
    told = trial(CPU)
    assert "no C compiler" in told
    assert "no Python.h" in told
    assert "To use the GPU: sudo apt-get install gcc libc6-dev" in told


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "the GPU's memory is full (12 MB of 24 GB are free)"),
        (
            torch.AcceleratorError("CUDA error: out of memory\nhints"),
            "the GPU's memory is full (12 MB of 24 GB are free)",
        ),
        (torch.AcceleratorError("CUDA error: all CUDA-capable devices are busy\nhints"), "devices are busy"),
        (torch.AcceleratorError("CUDA error: no kernel image is available\nhints"), "no kernel image is available"),
    ],
)
def test_what_torch_cannot_do_on_a_gpu_is_not_said_of_a_compiler(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "ones", fails)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (12 << 20, 24 << 30))
    told = trial(CPU)
    assert said in told
    assert "Triton" not in told
    assert "apt-get" not in told
    assert choose("auto", [NEW], lambda device: told) == (CPU, f"the model runs on the CPU: {told}")
    with pytest.raises(InvalidInput, match="or use cpu"):
        choose("cuda", [NEW], lambda device: told)


@pytest.mark.parametrize("starts", [True, False])
def test_cards_are_counted_by_cuda_and_not_by_the_driver(starts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which counts slices by MIG as whole cards, and one that CUDA cannot use."""
    begun: list[bool] = []

    def init() -> None:
        if not starts:
            raise RuntimeError("No CUDA GPUs are available")
        begun.append(True)

    def properties(index: int) -> SimpleNamespace:
        assert index < 1, "invalid device ordinal"
        return SimpleNamespace(name="Tesla T4", major=7, minor=5)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 if begun else 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    device, notice = device_for("auto")
    assert device == CPU
    assert ("Tesla T4" in notice) == starts


def test_the_trace_begins_with_why_a_model_is_not_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "device_for", lambda asked: choose(asked, [NEW], broken))
    with pytest.raises(InvalidInput, match=NO_GCC):
        loading.load(ModelSpec("/no/such/folder", device="cuda"))
    with Engine(ModelSpec("demo"), threads=1) as engine:
        notices = [(r.level, r.text) for r in engine.trace.since(0) if isinstance(r, Notice)]
    assert notices == [("warning", f"the model runs on the CPU: {NO_GCC}")]
