"""Which sizes of steps are captured, what a replay leaves, and what becomes of graphs and streams, where torch's CUDA
calls are noted; what is computed is in `interpreted_engine_checks.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.jobs.progress import LoadCancelled
from engine.kernels import dependent_launch
from engine.kernels.dependent_launch import MOST_TOKENS as MOST_DEPENDENT
from engine.kernels.dependent_launch import launch_options
from engine.memory.rules import APART, MOST, MOST_TOKENS, bucket_sizes, mixed_sizes
from engine.parallel.board import Board
from engine.parallel.group.spans import HostEvent, Spans
from engine.runner.cuda_graphs import Drawn, StepGraphs, array_interface, capture, capture_stream

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def step(rows: int) -> Drawn:
    return Drawn(torch.full((rows, 1), 3.0), torch.zeros(2, rows, dtype=torch.int32))


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8, 9, 64, 255, 256, 257, 600, MOST, MOST + 1, 5000])
def test_every_number_of_rows_finds_a_size_that_is_not_much_larger(most: int) -> None:
    graphs = StepGraphs(bucket_sizes(most), CPU)
    assert list(graphs.sizes) == sorted(set(graphs.sizes))
    for rows in range(1, min(most, MOST) + 1):
        size = graphs.size_for(rows)
        assert rows <= size < (2 * rows if rows < 8 else rows + 8 if rows <= APART else rows + 64)
    assert graphs.size_for(graphs.sizes[-1] + 1) == 0
    assert len(graphs.sizes) <= 50


@pytest.mark.parametrize("budget", [1, 16, 17, 100, 512, 600, 2048, 8192])
def test_every_step_with_prompts_finds_a_size_that_is_not_much_larger(budget: int) -> None:
    graphs = StepGraphs(mixed_sizes(budget, 28, 440_000_000), CPU)
    assert all(size % 16 == 0 for size in graphs.sizes), "as launches like their sizes"
    for tokens in range(1, min(budget, MOST_TOKENS) + 1):
        assert tokens <= graphs.size_for(tokens) < max(2 * tokens, tokens + 16)
        assert tokens < 256 or graphs.size_for(tokens) < 1.26 * tokens
    assert graphs.size_for(MOST_TOKENS + 1) == 0
    assert len(graphs.sizes) <= 18


def test_large_models_and_slow_gpus_capture_few_steps_with_prompts_or_none() -> None:
    """Where the GPU is not done before the host has launched the next step anyway."""
    of_8b = mixed_sizes(2048, 32, 7_000_000_000)
    assert of_8b == mixed_sizes(2048, 28, 440_000_000)[: len(of_8b)]
    assert of_8b[-1] == 896
    assert mixed_sizes(2048, 32, 7_000_000_000, 100e12) == (16, 32, 64)
    assert mixed_sizes(2048, 80, 70_000_000_000, 50e12) == ()


def test_on_a_gpu_nothing_is_replayed_before_it_was_captured() -> None:
    graphs = StepGraphs((1, 4), CUDA)
    assert graphs.sizes == ()
    assert graphs.size_for(1) == 0


def test_without_a_gpu_a_replay_is_the_step_itself() -> None:
    graphs = StepGraphs((1, 4), CPU)
    capture([(graphs, step)], lambda done, total: pytest.fail("nothing is captured"))
    assert graphs.sizes == (1, 4)
    assert not graphs.off
    assert torch.equal(graphs.replay(step, 4).logits, torch.full((4, 1), 3.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_what_a_replay_leaves_is_found_by_its_address(dtype: torch.dtype) -> None:
    """NumPy reads the same words of where an array lies as torch does of a GPU's."""
    wide = torch.arange(40).view(4, 10).to(dtype)
    for tensor in (wide, wide[:, :7], wide[1:, 2], wide.t()):
        there = np.asarray(SimpleNamespace(__array_interface__=array_interface(tensor)))
        assert there.__array_interface__["data"] == (tensor.data_ptr(), False)
        assert np.array_equal(there.view(tensor.numpy().dtype), tensor.numpy())


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What torch is asked to make, capture on and take apart, as on a GPU."""
    said: list[str] = []

    class Graph:
        def __init__(self) -> None:
            said.append("graph")

        def reset(self) -> None:
            said.append("reset")

        def replay(self) -> None:
            said.append("replay")

    @contextmanager
    def capturing(graph: Graph, pool: Any, stream: str, capture_error_mode: str) -> Iterator[None]:
        said.append(f"capture on {stream}")
        yield

    def stream(device: torch.device) -> str:
        said.append("stream")
        return f"stream {said.count('stream')}"

    calls = ("current_stream", "set_stream", "graph_pool_handle", "synchronize", "empty_cache")
    calls += ("get_sync_debug_mode", "set_sync_debug_mode")
    for name in calls:
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    for name, fake in {"CUDAGraph": Graph, "graph": capturing, "Stream": stream}.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    capture_stream.cache_clear()
    yield said
    capture_stream.cache_clear()


def test_every_set_is_captured_on_the_one_stream_of_the_process(noted: list[str]) -> None:
    for _ in range(2):
        graphs = StepGraphs((1, 4), CUDA)
        capture([(graphs, step)], lambda done, total: None)
        assert graphs.sizes == (1, 4)
    assert noted == ["graph", "stream", "capture on stream 1"] + ["graph", "capture on stream 1"] * 3


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("split", [False, True])
def test_launches_of_small_captured_steps_depend_unless_the_model_is_split(
    split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before a capture too: what they compile is what is captured."""
    found: dict[int, set[bool]] = {}

    def watched(rows: int) -> Drawn:
        found.setdefault(rows, set()).add(bool(launch_options(CUDA)))
        return step(rows)

    monkeypatch.setattr(dependent_launch, "can_depend", lambda device: True)
    board = Board(1)
    spans = Spans(board, 0, HostEvent) if split else None
    capture([(StepGraphs((1, MOST_DEPENDENT, MOST_DEPENDENT + 8), CUDA, spans), watched)], lambda done, total: None)
    board.close()
    assert found == {1: {not split}, MOST_DEPENDENT: {not split}, MOST_DEPENDENT + 8: {False}}
    assert not launch_options(CUDA)


@pytest.mark.parametrize("error", [RuntimeError("no capture"), LoadCancelled("stop")])
def test_graphs_of_a_set_go_together_the_one_under_way_too(noted: list[str], error: Exception) -> None:
    def fails(rows: int) -> Drawn:
        if noted.count("graph") == 2:
            raise error
        return step(rows)

    graphs = StepGraphs((1, 2, 4), CUDA)
    if isinstance(error, RuntimeError):
        capture([(graphs, fails)], lambda done, total: None)
        assert graphs.off == "they could not be captured: no capture"
    else:
        with pytest.raises(LoadCancelled):
            capture([(graphs, fails)], lambda done, total: None)
    assert noted[-3:] == ["capture on stream 1", "reset", "reset"]
    assert noted.count("graph") == 2
    assert graphs.sizes == ()


@pytest.mark.parametrize("waiting", [1, 4])
def test_a_step_that_waits_is_not_captured_whichever_size_it_is_that_waits(noted: list[str], waiting: int) -> None:
    def waits(rows: int) -> Drawn:
        if rows == waiting and modes and modes[-1] == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        return step(rows)

    modes: list[object] = []
    graphs = StepGraphs((1, 2, 4), CUDA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
        capture([(graphs, waits)], lambda done, total: None)
    assert graphs.off.endswith("which cannot be captured")
    assert noted == [], "nothing was begun"
    assert modes[-1] is None, "as it was"


@pytest.mark.parametrize("torch_lets_go", [True, False])
def test_what_a_failed_capture_leaves_is_ended_once(
    noted: list[str], torch_lets_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(rows: int) -> Drawn:
        if noted[-1:] == ["capture on stream 1"]:
            raise RuntimeError("no capture")
        return step(rows)

    def end(index: int, pool: str) -> None:
        noted.append(f"end {pool} on {index}")
        if torch_lets_go:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    left = [] if torch_lets_go else [{"active_size": 0}]
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: noted.append("empty"))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda pool: left)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *_: noted.append("release"), raising=False)
    graphs = StepGraphs((4,), CUDA)
    capture([(graphs, fails)], lambda done, total: None)
    assert graphs.off == "they could not be captured: no capture"
    after = noted[noted.index("reset") + 1 :]
    assert after == ["end pool on 0", "empty"] + ([] if torch_lets_go else ["release", "empty"])


def test_a_replay_tells_of_the_calls_that_were_captured(noted: list[str]) -> None:
    board = Board(1)
    spans = Spans(board, 0, HostEvent)

    def exchanging(rows: int) -> Drawn:
        with spans.call(8 * rows):
            return step(rows)

    graphs = StepGraphs((1, 4), CUDA, spans)
    capture([(graphs, exchanging)], lambda done, total: None)
    for number, sizes in enumerate(((4,), (1,), (4,)), 3):
        board.begin(0, number)
        spans.begin(number)
        for size in sizes:
            graphs.replay(exchanging, size)
        spans.end()
        told = board.times(number)
        assert told is not None
        assert told.sent == [8 * size for size in sizes], "once, whatever came before the capture"
    assert noted[-3:] == ["replay"] * 3
    board.close()


def test_a_rank_gives_its_graphs_up_where_another_could_not_capture_them(noted: list[str]) -> None:
    """Of the second set at its second size, as all ranks hear after each."""
    heard: list[bool] = []

    def any_rank(here: bool) -> bool:
        heard.append(here)
        return len(heard) == 6

    mixed, decode = StepGraphs((2, 8), CUDA), StepGraphs((1, 4, 6), CUDA)
    capture([(mixed, step), (decode, step)], lambda done, total: None, any_rank)
    assert heard == [False] * 6, "nothing failed here: two sizes and their waits, one wait and two sizes"
    for graphs in (mixed, decode):
        assert graphs.sizes == ()
        assert graphs.off == "they could not be captured: another rank could not capture them"
    assert noted.count("reset") == noted.count("graph") == 4


@pytest.mark.parametrize("failing", ["mixed", "decode"])
def test_sets_share_a_pool_and_what_fails_takes_those_before_it_along(noted: list[str], failing: str) -> None:
    """Steps with prompts come first: they are given up alone."""
    told: list[tuple[int, int]] = []

    def fails(size: int) -> Drawn:
        if size == 2:
            raise torch.OutOfMemoryError("no room")
        return step(size)

    mixed, decode = (StepGraphs((2, 8) if name == failing else (1, 4, 6), CUDA) for name in ("mixed", "decode"))
    capture([(mixed, fails), (decode, fails)], lambda done, total: told.append((done, total)))
    off = "no memory is left for them"
    assert (mixed.sizes, mixed.off) == ((), off)
    assert (decode.sizes, decode.off) == (((1, 4, 6), "") if failing == "mixed" else ((), off))
    assert told[0] == (0, 5)
    assert told == sorted(told)
    assert (told[-1] == (5, 5)) == (failing == "mixed")
    assert noted.count("reset") == noted.count("graph") - len(decode.sizes)
