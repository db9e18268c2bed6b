"""What ranks do by torch's collectives, and what is told and ended beside these: over gloo, as over NCCL."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from engine import InvalidInput, Parallel
from engine.core.setup.kv_budget import least_room
from engine.memory.rules import pool_share
from engine.models.device import device_of_each
from engine.parallel.board import Board
from engine.parallel.device_pipeline import DevicePipeline
from engine.parallel.group import Collective, chosen
from engine.parallel.group.joining import why_no_nccl
from engine.parallel.group.spans import HostEvent, MicroSpans, Spans
from engine.parallel.group.watchdog import Watchdog
from engine.parallel.split import shares
from engine.parallel.stages import Anatomy, Stage
from engine.runner.cuda_graphs import together

RANKS, CPU, CUDA = 3, torch.device("cpu"), torch.device("cuda")
GB = 1 << 30


T = TypeVar("T")


def on_all(folder: Path, do: Callable[[Collective], T]) -> tuple[list[T], Board]:
    """What each rank makes of it; they are threads of this process."""
    board = Board(RANKS)

    def rank(number: int) -> T:
        return do(Collective(board, number, "gloo", CPU, 20.0, folder / "meet"))

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(rank, range(RANKS))), board


def test_three_ranks_have_together_what_one_would_have(tmp_path: Path) -> None:
    """Columns and rows that do not divide, none of them on some ranks, and times and bytes of each call."""
    whole, columns = torch.randint(-9, 9, (RANKS, 1, 2, 8)).float(), torch.randn(4, 7)
    tokens = torch.arange(9)

    def do(group: Collective) -> tuple[torch.Tensor, ...]:
        group.begin(7)
        summed = group.sum(whole[group.rank].clone())
        begin, end = shares(7, group.rank, RANKS)
        gathered = group.gather(columns[:, begin:end], 7)
        share = group.sum_share(whole[group.rank].clone())
        rows = group.rows(share, 2)
        heard = tokens.clone() if group.rank == 0 else torch.zeros(9, dtype=torch.long)
        group.broadcast(heard)
        group.end()
        largest = torch.tensor(group.largest(float(-group.rank - 1), CPU))
        return summed, gathered, share, rows, heard, largest

    found, board = on_all(tmp_path, do)
    told = board.times(7)
    assert told is not None
    assert all(seconds > 0 for seconds in (*told.computing, *told.communicating))
    wide = [8 * (end - begin) * 4 for begin, end in (shares(2, rank, RANKS) for rank in range(RANKS))]
    narrow = [4 * (end - begin) * 4 for begin, end in (shares(7, rank, RANKS) for rank in range(RANKS))]
    assert told.sent == [2 * 64 + narrow[r] + wide[r] + (72 if r == 0 else 0) for r in range(RANKS)]
    for rank, (summed, gathered, share, rows, heard, largest) in enumerate(found):
        begin, end = shares(7, rank, RANKS)
        assert torch.equal(summed, whole.sum(0))
        assert torch.equal(gathered, columns if rank == 0 else columns[:, begin:end])
        assert torch.equal(rows, summed)
        assert torch.equal(share, summed[:, slice(*shares(2, rank, RANKS))])
        assert torch.equal(heard, tokens)
        assert largest == -1
    board.close()


def test_what_fails_on_one_rank_fails_on_all_and_all_go_on_together(tmp_path: Path) -> None:
    def do(group: Collective) -> list[str]:
        words = []
        for failing in (-1, 1, -1):

            def capture(failing: int = failing) -> None:
                if group.rank == failing:
                    raise RuntimeError("no memory is left")

            try:
                together(capture, lambda here: bool(group.largest(float(here), CPU)))
                words.append("")
            except RuntimeError as error:
                words.append(str(error))
        return words

    other = "another rank could not capture them"
    found, board = on_all(tmp_path, do)
    assert found == [["", other, ""], ["", "no memory is left", ""], ["", other, ""]]
    board.close()


class Reached(HostEvent):
    """A place that a device comes to when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.there = threading.Event()

    def query(self) -> bool:
        return self.there.is_set()

    def synchronize(self) -> None:
        assert self.there.wait(10)


def test_a_step_is_told_once_the_device_is_past_it_unless_a_replay_wrote_over_its_events() -> None:
    board, made = Board(1), list[Reached]()

    def event() -> Reached:
        made.append(Reached())
        return made[-1]

    spans = Spans(board, 0, event, later=True)
    with spans.call(100):
        time.sleep(0.002)
    captured = spans.take()
    for step in (1, 2, 3):
        board.begin(0, step)
        spans.begin(step)
        if step < 3:
            spans.again(captured)  # at once, and of step 1 nobody was told yet
        spans.end()
        assert board.times(step) is None
    for each in made:
        each.there.set()
    until = time.monotonic() + 10
    while (told := board.times(2)) is None:
        assert time.monotonic() < until
    assert told.communicating[0] > 0.001
    assert told.sent == [100]
    assert board.times(1) is None
    spans.close()
    board.close()


def test_a_stages_device_is_held_against_the_hosts_clock_whenever_it_is_idle() -> None:
    board, made, ahead = Board(1), list[Reached](), 0

    class Ahead(Reached):
        def record(self) -> None:
            super().record()
            self.at += ahead

    def event() -> Ahead:
        made.append(Ahead())
        return made[-1]

    def told(step: int) -> tuple[float, float]:
        """How long the step computed, and how far what is told of its begin is from when that was, in seconds."""
        until = time.monotonic() + 10
        while (found := board.stage_times(step)) is None:
            assert time.monotonic() < until
        assert found.sent == [7]
        return found.computing[0], found.micro_begun[0] - begun[step]

    spans, begun = MicroSpans(board, 0, event, later=True), {}
    for step, skew in ((1, 5), (2, 8), (3, 8)):  # the second finds it busy, and goes by what the first one found
        ahead = skew * 10**9
        board.begin(0, step)
        spans.begin(step)
        begun[step] = time.monotonic()
        with spans.computing():
            time.sleep(0.002)
        with spans.call(7):
            pass
        spans.end()
        if step > 1:
            for each in made:
                each.there.set()
            assert told(step)[0] >= 0.002
    assert told(1)[1] == pytest.approx(0, abs=0.1)
    assert told(2)[1] == pytest.approx(3, abs=0.1)
    assert told(3)[1] == pytest.approx(0, abs=0.1)
    spans.close()
    board.close()


def test_stages_hand_on_around_and_tell_when_they_computed(tmp_path: Path) -> None:
    board, anatomy = Board(RANKS), Anatomy("layers", RANKS, "embedding", "head", False)

    def rank(number: int) -> Tensor:
        stage = Stage(number, RANKS, number, number + 1, anatomy, False)
        pipeline = DevicePipeline(Parallel(pipeline=RANKS), board, stage, "gloo", CPU, tmp_path / "meet")
        pipeline.begin(1)
        x = torch.zeros(2, 5, dtype=torch.bfloat16)
        for i in range(2):
            if number:
                pipeline.receive(x)
            with pipeline.computing():
                x += 10**number
            if number < RANKS - 1 or i:
                pipeline.send(x)
        if not number:
            pipeline.receive(x)
        pipeline.end()
        return x

    with ThreadPoolExecutor(RANKS) as pool:
        first, *_ = pool.map(rank, range(RANKS))
    assert first.tolist() == [[112.0] * 5] * 2
    told = board.stage_times(1)
    assert told is not None
    assert told.sent == [40, 40, 20]
    spans = told.micro_begun, told.micro_ended
    begun, ended = (torch.tensor(each, dtype=torch.float64).view(RANKS, 2) for each in spans)
    assert (begun[1:] >= ended[:-1]).all()
    board.close()


@pytest.mark.parametrize("why", ["late", "gone"])
def test_the_watchdog_ends_what_waits_for_a_rank_that_is_late_or_gone(why: str) -> None:
    gone, aborted = threading.Event(), threading.Event()
    dog = Watchdog(0.2 if why == "late" else 60.0, gone.is_set, aborted.set)
    first, second = Reached(), Reached()
    for event in (first, second):
        dog.expect(event)
    first.there.set()
    assert not aborted.wait(0.1)
    assert not dog.bit
    if why == "gone":
        gone.set()
    assert aborted.wait(5)
    assert dog.bit


def test_a_process_ends_in_which_even_the_end_of_waiting_waits(capsys: pytest.CaptureFixture[str]) -> None:
    ended, never = list[int](), threading.Event()
    dog = Watchdog(60.0, lambda: False, lambda: never.wait(0.3), last=0.1, end=ended.append)
    dog.bite()
    assert ended == [70]

    def fails() -> None:
        raise RuntimeError("no communicator")

    Watchdog(60.0, lambda: False, fails, end=ended.append).bite()
    assert ended == [70, 70]
    said = capsys.readouterr().err
    assert "could not be ended (it did not return): the process ends" in said
    assert "(no communicator)" in said


def test_the_watchdog_lets_pass_what_comes_in_time() -> None:
    aborted = threading.Event()
    dog = Watchdog(0.15, lambda: False, aborted.set)
    for _ in range(5):
        event = Reached()
        dog.expect(event)
        time.sleep(0.06)
        event.there.set()
    assert not aborted.wait(0.3)
    dog.bite()
    assert aborted.is_set(), "at the end it lets go of what is held"


def test_each_rank_has_a_gpu_of_its_own_the_first_of_them_the_one_that_was_asked_for() -> None:
    def places(first: str, ranks: int, cards: int) -> list[str]:
        return [str(d) for d in device_of_each(torch.device(first), ranks, "tensor_parallel=2", cards)]

    assert places("cuda:0", 2, 2) == ["cuda:0", "cuda:1"]
    assert places("cuda:1", 2, 4) == ["cuda:1", "cuda:2"]
    assert places("cuda:3", 4, 4) == ["cuda:3", "cuda:0", "cuda:1", "cuda:2"]
    assert places("cpu", 2, 0) == ["cpu", "cpu"]
    with pytest.raises(InvalidInput, match=r"tensor_parallel=2: each rank .* this machine has 1; use 1, or device cpu"):
        places("cuda:0", 2, 1)
    with pytest.raises(InvalidInput, match=r"this machine has 3; use at most 3"):
        places("cuda:0", 4, 3)


def test_gpus_meet_over_nccl_and_processors_never_do() -> None:
    two, half = Parallel(2), torch.float16
    if why := why_no_nccl():
        with pytest.raises(InvalidInput, match=r"tensor_parallel=2: GPUs exchange .* over NCCL, and this torch"):
            chosen(two, half, CUDA, True)
        assert "install its CUDA build" in why or "newer torch" in why
    else:
        assert chosen(two, half, CUDA, True) == "nccl"
    assert chosen(Parallel(2, "gloo"), half, CUDA, True) == "gloo"
    assert chosen(two, half, CPU, False) == "gloo"
    assert chosen(two, torch.float32, CPU, True) == "gloo"
    for backend, device, gpu_path, words in [
        ("nccl", CPU, False, "it is between GPUs"),
        ("shared", CUDA, True, "it is for a CPU's ranks"),
        ("shared", CPU, True, "it is for a CPU's ranks"),
    ]:
        with pytest.raises(InvalidInput, match=f"parallel_backend='{backend}': {words}"):
            chosen(Parallel(2, backend), half, device, gpu_path)


def test_a_pool_is_as_large_as_the_least_free_card_allows() -> None:
    rooms, parts = [(40 * GB, False), (30 * GB, False)], [100, 100]
    share = pool_share(30 * GB, "cuda", GB)
    assert least_room(rooms, parts, "cuda", GB) == (60 * GB, 2 * share)
    assert least_room(rooms, [300, 100], "cuda", GB) == (40 * GB * 4 // 3, pool_share(40 * GB, "cuda", GB) * 4 // 3), (
        "rank 0 has a draft's keys and values too"
    )
    assert least_room([(30 * GB, True), (30 * GB, False)], parts, "cuda")[1] == 2 * pool_share(30 * GB, "cuda", 0, True)
    assert least_room(rooms[:1], [100], "cpu") == (40 * GB, pool_share(40 * GB, "cpu"))
