"""How many threads compute: as many as a step clearly gains by, and it is told why."""

import pytest
import torch

from engine import Engine, EngineConfig, ModelSpec
from engine.core.setup.rehearsal import MOST_PASSES, worthwhile


@pytest.mark.parametrize(
    ("seconds", "chosen", "close"),
    [
        ({1: 10.0, 2: 5.0}, 2, False),
        ({1: 10.0, 2: 9.5}, 1, False),
        ({1: 10.0, 2: 8.2}, 2, True),
        ({1: 10.0, 2: 8.5}, 1, True),
        ({1: 10.0, 2: 9.0, 4: 5.0}, 4, True),
        ({1: 10.0, 2: 5.0, 4: 4.9}, 2, False),
    ],
)
def test_more_threads_must_clearly_gain(seconds: dict[int, float], chosen: int, close: bool) -> None:
    assert worthwhile(seconds) == (chosen, close)


def test_what_was_chosen_is_told_with_its_reason() -> None:
    before = torch.get_num_threads()
    assert MOST_PASSES > 2
    try:
        torch.set_num_threads(2)
        with Engine(ModelSpec("demo-draft"), EngineConfig(kv_memory=4 << 20), most_threads=2) as engine:
            machine = engine.trace.header.machine
    finally:
        torch.set_num_threads(before)
    assert machine.threads in (1, 2)
    assert " ms on 1, " in machine.threads_why
    assert " ms on 2; more must gain 20%" in machine.threads_why
    with Engine(ModelSpec("demo-draft"), EngineConfig(kv_memory=4 << 20), threads=1) as engine:
        assert engine.trace.header.machine.threads_why == "as asked"
