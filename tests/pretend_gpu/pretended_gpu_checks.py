"""What no GPU forgives, and a pretend one neither: run by `tests/engine/core/triton_path/test_pretend_gpu.py`."""

import threading

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("run by test_pretend_gpu.py", allow_module_level=True)

from engine.kernels.store_kv import store_kv
from engine.runner.cuda_graphs import unowned
from tests.pretend_gpu import tensor
from tests.pretend_gpu.streams import pace

HERE = torch.device("cuda", 0)
LATE = pace.pace == "late"


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def pinned(values: list[float]) -> Tensor:
    return torch.tensor(values, pin_memory=True)


def test_tensors_of_the_host_do_not_meet_those_of_the_gpu() -> None:
    there = torch.ones(3, device=HERE)
    for wrong in (
        lambda: there + torch.ones(3),
        lambda: torch.cat([there, torch.ones(1)]),
        lambda: there @ torch.ones(3),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()
    assert (there + torch.tensor(2.0)).tolist() == [3, 3, 3], "but for a single number"
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()


def test_memory_that_nobody_wrote_is_no_zeros() -> None:
    assert not (torch.empty(64, device=HERE).abs() < 1e30).any()
    assert not (torch.empty(64, dtype=torch.int32, device=HERE).abs() < 1 << 30).any()


@pytest.mark.skipif(not LATE, reason="whether it was in time is chance")
def test_a_pinned_source_is_read_when_its_copy_has_its_turn() -> None:
    source = pinned([1, 2, 3])
    there = source.to(HERE, non_blocking=True)
    source.fill_(7)
    assert there.tolist() == [7, 7, 7], "the host changed it too early"
    plain = torch.tensor([1.0, 2, 3])
    there = plain.to(HERE, non_blocking=True)
    plain.fill_(7)
    assert there.tolist() == [1, 2, 3], "what is not pinned was taken at once"


@pytest.mark.skipif(not LATE, reason="whether it was in time is chance")
def test_what_comes_to_the_host_is_there_when_it_was_waited_for() -> None:
    target = torch.zeros(2, pin_memory=True)
    target.copy_(torch.full((2,), 5.0, device=HERE), non_blocking=True)
    came = torch.cuda.Event()
    came.record()
    assert target.isnan().all()
    assert not came.query()
    came.synchronize()
    assert target.tolist() == [5, 5]


def test_what_makes_the_host_wait_is_told() -> None:
    there = torch.arange(4, device=HERE)
    waiting = (
        lambda: there.sum().item(), lambda: there[there > 1], lambda: there.nonzero(), lambda: there.cpu(),
        lambda: torch.tensor([1], device=HERE), lambda: bool((there == 1).any()), lambda: there[torch.tensor([1])],
    )  # fmt: skip
    for each in waiting:
        before = len(tensor.waits)
        each()
        assert len(tensor.waits) > before
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError, match="synchronizing"):
                each()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    before = len(tensor.waits)
    there[torch.tensor([1], pin_memory=True).to(HERE, non_blocking=True)] += 1
    pinned([1.0]).to(HERE, non_blocking=True)
    assert len(tensor.waits) == before


def captured(step: object, pool: object = None) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
        step()
    return graph


def test_a_captured_step_is_computed_when_it_is_replayed_from_what_lies_there_then() -> None:
    given, made = torch.ones(4, device=HERE), []
    graph = captured(lambda: made.append(given * 2))
    given.fill_(5)
    graph.replay()
    assert made[0].tolist() == [10] * 4


@pytest.mark.parametrize("asks", ["item", "synchronize", "event", "pageable"])
def test_a_capture_is_spoiled_by_what_waits(asks: str) -> None:
    there, reached = torch.ones(1, device=HERE), torch.cuda.Event()
    reached.record()
    do = {
        "item": there.item, "synchronize": torch.cuda.synchronize, "event": reached.synchronize,
        "pageable": lambda: torch.ones(2).to(HERE, non_blocking=True),
    }[asks]  # fmt: skip

    def step() -> None:
        with pytest.raises(RuntimeError, match="capturing"):
            do()

    with pytest.raises(RuntimeError, match="previous error during capture"):
        captured(step)
    torch.cuda.synchronize()


def test_a_graph_does_not_keep_what_it_reads() -> None:
    given = [torch.ones(4, device=HERE)]
    graph = captured(lambda: given[0].mul(2))
    graph.replay()
    given.clear()
    with pytest.raises(AssertionError, match="nobody owns"):
        graph.replay()


def test_graphs_of_a_pool_overwrite_what_others_of_it_left() -> None:
    given, left = torch.ones(4, device=HERE), {}
    pool = torch.cuda.graph_pool_handle()

    def step(name: str) -> None:
        left[name] = given * 3

    first = captured(lambda: step("first"), pool)
    left["first"] = unowned(left["first"])
    second = captured(lambda: step("second"), pool)
    left["second"] = unowned(left["second"])
    first.replay()
    assert left["first"].view(torch.float32).tolist() == [3] * 4
    second.replay()
    assert left["second"].tolist() == [3] * 4
    assert left["first"].tolist() != [3] * 4


def test_a_gpu_has_no_more_memory_than_it_has() -> None:
    card = tensor.cards[0]
    before = torch.cuda.memory_allocated(0)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        torch.empty(card.total + 1, dtype=torch.uint8, device=HERE)
    some = torch.empty(1 << 20, dtype=torch.uint8, device=HERE)
    assert torch.cuda.memory_allocated(0) == before + (1 << 20)
    assert torch.cuda.max_memory_allocated(0) >= before + (1 << 20)
    del some
    assert torch.cuda.memory_allocated(0) == before
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info(0)[0] == card.total - torch.cuda.memory_allocated(0)


def test_a_kernel_has_its_turn_too_and_takes_nothing_of_the_hosts() -> None:
    k, slots = torch.ones(1, 1, 32, device=HERE), torch.zeros(1, dtype=torch.int64, device=HERE)
    cache = torch.zeros(1, 1, 1, 32, device=HERE)
    store_kv(k, k, cache, cache, slots)
    k.fill_(3)  # afterwards
    assert (cache == 1).all()
    with pytest.raises(ValueError, match="cpu tensor"):
        store_kv(k, k, torch.zeros(1, 1, 1, 32), cache, slots)


def test_other_threads_have_the_same_gpu() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(str(torch.zeros(2, device=HERE).device)))
    thread.start()
    thread.join()
    assert found == ["cuda:0"]
