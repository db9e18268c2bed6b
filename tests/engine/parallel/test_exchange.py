"""What ranks hand each other: shares of rows that do not divide, of none, and of more than one message holds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from engine.parallel.board import BUFFER, Board
from engine.parallel.group import SharedMemory
from engine.parallel.mail import Mail
from engine.parallel.split import shares

RANKS, WIDTH = 3, 512
LONG = BUFFER // (WIDTH * 4) + 100  # rows: two messages


def together(board: Board, do: Callable[[SharedMemory], Tensor]) -> list[Tensor]:
    """What each rank gets; they are threads of this process."""
    groups = [SharedMemory(board, rank, 20.0) for rank in range(RANKS)]
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(do, groups))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 7, LONG])
def test_shares_of_rows_are_those_of_the_whole(rows: int, dtype: torch.dtype) -> None:
    board, handed = Board(RANKS), torch.randn(RANKS, 1, rows, WIDTH).to(dtype)
    ranges = [shares(rows, rank, RANKS) for rank in range(RANKS)]
    whole = together(board, lambda group: group.sum(handed[group.rank]))
    summed = together(board, lambda group: group.sum_share(handed[group.rank]))
    mine = together(board, lambda group: group.share(handed[0]))
    all_rows = together(board, lambda group: group.rows(summed[group.rank], rows))
    for (begin, end), one, share, rows_of_all in zip(ranges, summed, mine, all_rows):
        assert torch.equal(one, whole[0][:, begin:end]), "to the bit"
        assert torch.equal(share, handed[0][:, begin:end])
        assert torch.equal(rows_of_all, whole[0])
    board.close()


def test_times_by_a_kernel_are_those_by_numpy() -> None:
    board = Board(RANKS)
    mails = [Mail(board, rank, 5.0) for rank in range(RANKS)]
    for rank in range(RANKS):
        board.begin(rank, 21)
    assert mails[0].times(20) is None
    for rank, seconds in enumerate((0.25, 0.01, 0.10)):
        board.tell(rank, 21, [seconds, 0.5 - seconds], 0.5 + 0.1 * rank, 101 + rank)
    told, ours = board.times(21), mails[0].times(21)
    assert told is not None
    assert ours is not None
    for name in ("computing", "communicating", "waiting", "sent"):
        assert list(getattr(ours, name)) == pytest.approx(list(getattr(told, name)))
    board.close()


def test_plans_come_in_order_however_long_and_whoever_is_slow() -> None:
    board = Board(RANKS)
    first, *others = (Mail(board, rank, 5.0) for rank in range(RANKS))
    plans = [bytes([i]) * (i * 997) for i in range(60)]

    def read(mail: Mail) -> list[bytes | None]:
        return [mail.take() for _ in range(len(plans) + 1)]

    with ThreadPoolExecutor(RANKS) as pool:
        found = [pool.submit(read, mail) for mail in others]
        for plan in plans[:30]:
            assert first.post(plan)
        first.ring()
        for plan in plans[30:]:
            assert first.post(plan)
    assert [future.result() for future in found] == [[*plans[:30], None, *plans[30:]]] * 2
    assert not first.post(bytes(1 << 20)), "that goes over the socket"
    board.close()


def test_a_rank_that_takes_no_plans_is_not_waited_for_for_ever() -> None:
    board = Board(RANKS)
    mail = Mail(board, 0, 0.1)
    assert mail.post(b"one")
    assert mail.post(b"two")
    with pytest.raises(OSError, match="does not take"):
        mail.post(b"three")
    board.close()
