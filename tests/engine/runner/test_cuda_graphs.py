"""How many rows the captured decode steps have; what they compute is in `interpreted_engine_checks.py`."""

import pytest
import torch

from engine.memory.rules import APART, MOST, bucket_sizes
from engine.runner.cuda_graphs import DecodeGraphs


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8, 9, 64, 255, 256, 257, 600, MOST, MOST + 1, 5000])
def test_every_number_of_rows_finds_a_size_that_is_not_much_larger(most: int) -> None:
    graphs = DecodeGraphs(bucket_sizes(most), torch.device("cpu"))
    assert list(graphs.sizes) == sorted(set(graphs.sizes))
    for rows in range(1, min(most, MOST) + 1):
        size = graphs.size_for(rows)
        assert rows <= size < (2 * rows if rows < 8 else rows + 8 if rows <= APART else rows + 64)
    assert graphs.size_for(graphs.sizes[-1] + 1) == 0
    assert len(graphs.sizes) <= 50


def test_on_a_gpu_nothing_is_replayed_before_it_was_captured() -> None:
    graphs = DecodeGraphs((1, 4), torch.device("cuda"))
    assert graphs.sizes == ()
    assert graphs.size_for(1) == 0


def test_without_a_gpu_a_replay_is_the_step_itself() -> None:
    def step(rows: int) -> torch.Tensor:
        return torch.full((rows, 1), 3.0)

    graphs = DecodeGraphs((1, 4), torch.device("cpu"))
    graphs.capture(step, lambda done, total: pytest.fail("nothing is captured"))
    assert graphs.sizes == (1, 4)
    assert not graphs.off
    assert torch.equal(graphs.replay(step, 4), torch.full((4, 1), 3.0))
