"""The records of offloaded prefixes: refused where they cannot be."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.trace import Header, Record, Step, SwapEvent
from engine.trace.records.check import RecordCheck

Changed = Callable[[Step], Step]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    with Engine(ModelSpec("demo-draft"), threads=1) as engine:
        memory = 22 * 8 * engine.card.kv_token_bytes
        values = {"kv_memory": memory, "prefix_caching": True, "offload_prefixes": True}
        trace = engine.begin(EngineConfig(max_running=2, token_budget=256, block_size=8, **values))  # type: ignore[arg-type]
        for app in (0, 1, 2, 3, 0):
            params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
            engine.submit([20 + app] * 64 + [9], params).result(60)
        return list(trace.records)


def check(records: list[Record]) -> None:
    checked = RecordCheck()
    for record in records:
        checked(record)


def put(column: str, event: SwapEvent, value: int) -> Changed:
    """The first event of this kind in a step with another value."""

    def changed(step: Step) -> Step:
        at = np.flatnonzero(step.swap_event == event)
        if not len(at):
            return step
        values = np.array(getattr(step, column))
        values[at[0]] = value
        return replace(step, **{column: values})

    return changed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("swap_request", SwapEvent.OFFLOADED, 0), "an owner of an offloaded prefix"),
        (put("swap_place", SwapEvent.OFFLOADED, 0), "an owner of an offloaded prefix"),
        (put("swap_request", SwapEvent.FOUND, -1), "swapped of a request that was not submitted"),
        (put("swap_place", SwapEvent.FOUND, -1), "swap_place outside its bounds"),
        (put("swap_block", SwapEvent.FOUND, -1), "a prefix that came to no block"),
        (put("swap_event", SwapEvent.OFFLOADED, SwapEvent.OUT), "outside its bounds"),
        (put("swap_event", SwapEvent.FOUND, 6), "swap_event outside its bounds"),
    ],
)
def test_what_cannot_be_is_refused(records: list[Record], change: Changed, told: str) -> None:
    check(records)
    with pytest.raises(ValueError, match=told):
        check([change(record) if isinstance(record, Step) else record for record in records])


def test_a_run_without_it_has_none(records: list[Record]) -> None:
    head = records[0]
    assert isinstance(head, Header)
    plain = replace(head, config=replace(head.config, offload_prefixes=False, swap_memory=None))
    with pytest.raises(ValueError, match="swap_event outside its bounds"):
        check([plain, *records[1:]])
