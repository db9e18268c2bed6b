"""A load that fails or is cancelled leaves memory as it was, in whatever quantization."""

import gc
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import Engine, EngineConfig, EngineProcess, InvalidInput, ModelSpec
from engine.bench.bars import no_bars
from engine.bench.cpu.quantized import save_subject
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.bench.subject import Shape
from engine.jobs import LoadCancelled, LoadProgress
from engine.memory.allocator import give_back
from tests.children import children

SHAPE = Shape(hidden=1024, layers=4, heads=8, kv_heads=4, intermediate=2048, vocabulary=8192)  # 54 M parameters
MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("memory")
    with no_bars():
        plain = save_subject(root / "plain", SHAPE)
        awq = save_rounded_awq(plain, root / "awq")
    return lambda quantization: awq if quantization == "awq" else plain


def tensors() -> int:
    """Bytes of all tensors that Python knows."""
    gc.collect()
    found = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    return sum(o.nbytes for o in found if o.layout is torch.strided and o.device.type == "cpu")


def resident() -> int:
    return psutil.Process().memory_info().rss


def leaves_memory_as_it_was(spec: ModelSpec, load: Callable[[], object]) -> None:
    """Also a load that went well, whose engine is closed; it imports libraries, which stay. What is lost is lost each
    time (100 to 200 MiB); the allocator keeps some memory now and then, so one time of four without growth is proof."""
    known, grown = tensors(), list[int]()
    Engine(spec, threads=1).close()
    assert tensors() <= known + MIB
    while len(grown) < 4 and (not grown or grown[-1] > 32):
        held = resident()
        load()
        assert tensors() <= known + MIB
        give_back()
        grown.append((resident() - held) // MIB)
    assert grown[-1] <= 32, f"MiB by which each of the loads grew the process: {grown}"


class Cancelling:
    """Sets `event` when a load has read some share of the bytes."""

    def __init__(self, share: float) -> None:
        self.event, self.share, self.last, self.set_at = threading.Event(), share, 0, 0.0

    def __call__(self, progress: LoadProgress) -> None:
        if progress.stage == "reading weights":
            assert progress.done >= self.last, "bytes only grow"
            self.last = progress.done
            if progress.done > self.share * progress.total and not self.event.is_set():
                self.set_at = time.perf_counter()
                self.event.set()


@pytest.mark.parametrize("quantization", ["none", "nf4", "awq"])
def test_a_cancelled_load_leaves_memory_as_it_was(quantization: str, folder: Callable[[str], Path]) -> None:
    spec, errors = ModelSpec(str(folder(quantization)), quantization, device="cpu"), list[object]()

    def cancel() -> None:
        cancelling = Cancelling(0.5)
        with pytest.raises(LoadCancelled) as caught:
            Engine(spec, progress=cancelling, cancelled=cancelling.event, threads=1)
        assert time.perf_counter() - cancelling.set_at < 20.0  # about one on a quiet machine
        assert 0 < cancelling.last < 110 * MIB
        errors.append(caught.value)  # still held, and with it where it came from

    leaves_memory_as_it_was(spec, cancel)


@pytest.mark.parametrize("quantization", ["int8", "torchao-int8", "awq"])
def test_a_load_that_fails_at_its_end_leaves_memory_as_it_was(
    quantization: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """All is read when it turns out that a weight is of no use."""
    copy = Path(shutil.copytree(folder(quantization), tmp_path / "model"))
    state = load_file(copy / "model.safetensors")
    state["model.stray.weight"] = torch.zeros(4, 4)
    save_file(state, copy / "model.safetensors", {"format": "pt"})
    del state
    spec, errors = ModelSpec(str(copy), quantization, device="cpu"), list[object]()

    def fail() -> None:
        with pytest.raises(InvalidInput, match=r"unexpected model\.stray\.weight") as caught:
            Engine(spec, threads=1)
        errors.append(caught.value)

    leaves_memory_as_it_was(ModelSpec(str(folder(quantization)), quantization, device="cpu"), fail)


def test_a_model_without_room_for_its_cache_leaves_memory_as_it_was(folder: Callable[[str], Path]) -> None:
    spec, errors = ModelSpec(str(folder("nf4")), "nf4", device="cpu"), list[object]()

    def fail() -> None:
        with pytest.raises(InvalidInput) as caught:
            Engine(spec, EngineConfig(kv_memory=1), threads=1)
        errors.append(caught.value)

    leaves_memory_as_it_was(spec, fail)


def test_a_cancelled_load_of_a_child_process_ends_the_child_at_once(folder: Callable[[str], Path]) -> None:
    cancelling = Cancelling(0.2)
    before = children()
    with pytest.raises(LoadCancelled):
        EngineProcess(ModelSpec(str(folder("nf4")), "nf4"), progress=cancelling, cancelled=cancelling.event)
    assert time.perf_counter() - cancelling.set_at < 20.0  # about one on a quiet machine
    assert children() == before
