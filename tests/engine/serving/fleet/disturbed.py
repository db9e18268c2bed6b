"""32 streams over HTTP of a fleet that loses a replica meanwhile."""

import json
import threading
import time

import httpx2

from engine import EngineProcess, SamplingParams
from engine.serving import Server
from engine.serving.fleet import Fleet
from tests.engine.serving.fleet.conftest import busiest, kill, story, undisturbed, whole
from tests.waiting import until

STREAMS, TOKENS = 32, 96


def calm(alone: EngineProcess) -> list[str]:
    """What each stream is to say: greedy ones and drawn ones, in turns."""
    params = [SamplingParams(max_tokens=TOKENS, seed=i, temperature=i % 2, ignore_eos=True) for i in range(STREAMS)]
    return [one[0].text for one in undisturbed(alone, [story(i) for i in range(STREAMS)], params)]


def client(server: Server) -> httpx2.Client:
    """For as many streams at once."""
    limits = httpx2.Limits(max_connections=None)
    return httpx2.Client(base_url=server.address, timeout=60, trust_env=False, limits=limits)


def lose_one(fleet: Fleet, http: httpx2.Client, want: list[str], after: float) -> None:
    """Kills the busiest replica so many seconds after all streams were sent, asserts that each says what it is to say,
    and waits until the fleet is whole again."""
    events: list[list[str]] = [[] for _ in want]

    def read(i: int, into: list[str]) -> None:
        body = {"model": "demo", "messages": story(i), "max_tokens": TOKENS, "seed": i, "temperature": i % 2}
        with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True, "ignore_eos": True}) as on:
            into += [line for line in on.iter_lines() if line]

    readers = [threading.Thread(target=read, args=(i, events[i])) for i in range(len(want))]
    known, deaths = fleet.trace.samples, fleet.state["deaths"]
    for reader in readers:
        reader.start()
    until(lambda: fleet.trace.samples == known + len(want))
    time.sleep(after)
    kill(busiest(fleet))
    for reader in readers:
        reader.join()
    assert [one[-1] for one in events] == ["data: [DONE]"] * len(want)
    told = [[json.loads(line[6:])["choices"][0] for line in one[:-1]] for one in events]
    assert {one[-1]["finish_reason"] for one in told} == {"length"}
    assert ["".join(choice["delta"].get("content", "") for choice in one) for one in told] == want
    until(lambda: fleet.state["deaths"] == deaths + 1 and whole(fleet))
