"""What rank 0 plans is what the other ranks compute: blocks and tokens survive the way, step after step."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from engine.parallel.wire import Receiver, Sender
from engine.runner.device_rows import DeviceRows
from engine.scheduler.plan import Row, StepPlan
from engine.trace import Kind


def branch(tokens: list[int], blocks: list[int], adapter: int = 0) -> Any:
    return SimpleNamespace(tokens=tokens, blocks=blocks, adapter=adapter)


def test_plans_arrive_as_they_were_sent_while_slots_change_hands() -> None:
    rng, sender, receiver = random.Random(3), Sender(4), Receiver(4)
    branches = [branch([rng.randrange(3000) for _ in range(200)], []) for _ in range(4)]
    at = [0] * 4
    for _ in range(300):
        rows = []
        for slot in rng.sample(range(4), rng.randint(1, 4)):
            if at[slot] > 180 or rng.random() < 0.05:  # another comes to the slot, or its prefix was found in the cache
                first = rng.choice((0, 32))
                blocks = [rng.randrange(99) for _ in range(first // 16)]
                tokens = [rng.randrange(3000) for _ in range(200)]
                branches[slot], at[slot] = branch(tokens, blocks, rng.randrange(3)), first
            one, count = branches[slot], rng.choice((1, 1, 1, 7, 18))
            while len(one.blocks) * 16 < at[slot] + count:
                one.blocks.append(rng.randrange(99))
            if rng.random() < 0.1:
                one.blocks[-1] = rng.randrange(99)  # copied on write
            drafted = tuple(rng.randrange(3000) for _ in range(2)) if count == 7 else ()
            rows.append(
                Row(one, slot, at[slot], count, Kind.PREFILL if count > 1 else Kind.DECODE, 1, False, drafted=drafted)
            )
            at[slot] += count
        scored = ((rows[0], range(rows[0].first, rows[0].first + 1)),)
        plan = StepPlan(tuple(rows), copies=((1, 2),), swap_out=((3, 0), (4, 1)), swap_in=((0, 5),), scored=scored)
        found = receiver(sender(plan))
        assert (found.copies, found.swap_out, found.swap_in) == (plan.copies, plan.swap_out, plan.swap_in)
        assert found.scored_places() == plan.scored_places()
        for ours, theirs in zip(plan.rows, found.rows, strict=True):
            assert theirs.ids() == ours.ids()
            assert theirs.branch.blocks == ours.branch.blocks
            assert theirs.branch.adapter == ours.branch.adapter
            named = "slot first count kind samples".split()
            assert [getattr(theirs, name) for name in named] == [getattr(ours, name) for name in named]


def test_what_the_device_has_sampled_is_marked_and_a_table_that_begins_anew_too() -> None:
    sender, receiver = Sender(2), Receiver(2)
    one, two = branch(list(range(50)), [1, 2]), branch(list(range(50)), [3])

    def rows(at: int) -> StepPlan:
        return StepPlan(tuple(Row(b, slot, at, 1, Kind.DECODE, 1, False) for slot, b in enumerate((one, two))))

    def told(plan: StepPlan) -> list[tuple[bool, bool]]:
        found = receiver(sender(plan, lambda row: row.slot == 1)).rows
        assert [row.kind for row in found] == [Kind.DECODE] * 2
        return [(row.fed, row.joins) for row in found]

    assert told(rows(20)) == [(False, False), (True, False)]
    one.blocks.append(7)
    two.blocks[:] = [9, 4]
    assert told(rows(21)) == [(False, False), (True, True)]


def test_a_decode_step_is_sent_in_a_few_words_a_row() -> None:
    sender = Sender(64)
    rows = [branch(list(range(500)), list(range(i, i + 32))) for i in range(64)]

    def step(at: int) -> bytes:
        return sender(StepPlan(tuple(Row(b, i, at, 1, Kind.DECODE, 1, False) for i, b in enumerate(rows))))

    assert len(step(400)) > len(step(401)) == 4 * (5 + 64 * 10)
    assert np.frombuffer(step(402), np.int32)[0] == 64


def test_a_ranks_device_hears_of_another_adapter_in_the_same_slot() -> None:
    sender, receiver = Sender(1), Receiver(1)
    device = DeviceRows(1, 0, 4, 1, 9, torch.device("cpu"))
    for adapter in (1, 2, 0, 2):
        plan = StepPlan((Row(branch([5, 6, 7], [adapter], adapter), 0, 0, 3, Kind.PREFILL, 1, False),))
        device.follow(receiver(sender(plan)).rows, lambda _: ())
        noted = dict(zip(device._index, device._value, strict=True))  # what a send would copy
        assert noted[device._adapters_at] == adapter
        device._index.clear()
        device._value.clear()
