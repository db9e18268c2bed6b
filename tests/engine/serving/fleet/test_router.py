"""Where a request goes, and the words that say why."""

from dataclasses import replace

import numpy as np

from engine.serving.fleet.flight import chained
from engine.serving.fleet.holdings import Holdings
from engine.serving.fleet.router import Candidate, choose
from engine.trace.records import BlockEvent, Step, SwapEvent
from tests.engine.trace.hand_made import step


def test_a_request_goes_where_its_prefix_is() -> None:
    place, why = choose([Candidate(0, 2, 0, 8, 90), Candidate(1, 3, 0, 8, 50, found=32)])
    assert (place, why) == (1, "32 tokens of its prefix are there")


def test_not_where_others_wait_or_many_more_run() -> None:
    empty = Candidate(0, 0, 0, 8, 90, found=16)
    for loaded in (Candidate(1, 1, 1, 8, 50, found=48), Candidate(1, 3, 0, 8, 50, found=48)):
        place, why = choose([empty, loaded])
        assert place == 0
        assert "48 tokens of its prefix are at 1, which is loaded" in why
    assert choose([empty, Candidate(1, 2, 0, 8, 50, found=48)]).place == 1


def test_the_emptiest_is_told_by_its_samples_and_then_by_its_blocks() -> None:
    assert choose([Candidate(0, 2, 0, 8, 90), Candidate(1, 1, 0, 8, 10), Candidate(2, 1, 0, 8, 20)]).place == 2
    assert choose([Candidate(0, 4, 0, 16, 90), Candidate(1, 3, 0, 4, 90)]).place == 0, "by its share of the slots"
    assert choose([Candidate(3, 1, 0, 8, 9)]).why == "the emptiest: 1 open, 9 blocks free"


def test_a_prompts_blocks_are_named_with_all_before_them_and_its_last_token_is_computed() -> None:
    tokens = list(range(33))
    assert len(chained(tokens, 16)) == 2
    assert len(chained(tokens[:32], 16)) == 1
    assert chained(tokens, 16)[:1] == chained(tokens[:20], 16)
    assert chained([9, *tokens[1:]], 16)[1] != chained(tokens, 16)[1]
    assert not set(chained(tokens, 16, "pirate")) & set(chained(tokens, 16)), "other K and V of the same tokens"


def changes(*rows: tuple[int, int, int, int, int]) -> Step:
    event, block, request, branch, place = np.array(rows, np.int32).T
    columns = {"block": block, "block_request": request, "block_branch": branch, "block_place": place}
    return replace(step(0, 0.0, 0.0, []), block_event=event.astype(np.uint8), **columns)


def test_what_a_replica_holds_is_told_by_its_records_and_all_of_it_is_lost_with_it() -> None:
    held, chains = Holdings(), {4: (101, 102), 5: (101, 205)}
    held.learn(changes((BlockEvent.TAKEN, 7, 4, 0, 0), (BlockEvent.TAKEN, 8, 4, 0, 1)), chains)
    assert (held.found((101, 102, 3)), held.found((101, 9)), held.found((102,))) == (2, 1, 1)
    held.learn(changes((BlockEvent.SHARED, 7, 5, 0, 0), (BlockEvent.TAKEN, 9, 5, 0, 1)), chains)
    held.learn(changes((BlockEvent.LEFT, 7, 4, 0, 0), (BlockEvent.KEPT, 8, 4, 0, 1)), chains)
    assert held.found((101, 102)) == 2
    held.learn(changes((BlockEvent.TAKEN, 8, 6, 0, 0)), chains)  # whose prompt nobody knows
    assert held.found((101, 102)) == 1
    held.learn(changes((BlockEvent.KEPT, 9, 5, 0, 1)), chains)
    lost = held.lost()
    told = set(zip(lost["block"].tolist(), lost["block_event"].tolist(), lost["block_request"].tolist()))
    assert told == {(7, BlockEvent.FREED, 5), (8, BlockEvent.FREED, 6), (9, BlockEvent.FREED, -1)}


def test_a_prefix_in_host_memory_is_there_too_until_it_is_forgotten() -> None:
    held, chains = Holdings(), {4: (101, 102)}
    held.learn(changes((BlockEvent.TAKEN, 7, 4, 0, 0), (BlockEvent.TAKEN, 8, 4, 0, 1)), chains)
    held.learn(changes((BlockEvent.KEPT, 8, 4, 0, 1), (BlockEvent.KEPT, 7, 4, 0, 0)), chains)
    taken = changes((BlockEvent.TAKEN, 8, 6, 0, 0), (BlockEvent.TAKEN, 7, 6, 0, 1))  # by a prompt that nobody knows
    nobody = np.full(2, -1, np.int32)
    hosts = {"swap_host": np.array([0, 1], np.int32), "swap_request": nobody, "swap_branch": nobody}
    out = {"swap_event": np.full(2, SwapEvent.OFFLOADED, np.uint8), "swap_block": np.array([8, 7], np.int32)}
    held.learn(replace(taken, **hosts, **out, swap_place=nobody), chains)
    assert held.found((101, 102)) == 2
    gone = {"swap_event": np.full(1, SwapEvent.FORGOTTEN, np.uint8), "swap_block": nobody[:1]}
    one = {name: column[:1] for name, column in hosts.items()}
    held.learn(replace(step(0, 0.0, 0.0, []), **one, **gone, swap_place=nobody[:1]), chains)
    assert held.found((101, 102)) == 1
    lost = held.lost()
    assert (lost["swap_host"].tolist(), lost["swap_event"].tolist()) == ([1], [SwapEvent.FORGOTTEN])
