"""A server under thousands of requests whose clients go away at any moment, as `bench --serve --soak` has it."""

from engine.bench.serving.disconnects import leave
from tests.hardening.found import Found


def ask(count: int, seed: int, begin: int = 0) -> Found:
    """So many requests of one server, from this number on."""
    found, left = Found(), leave(count, seed, begin)
    found.counts.update(taken=left.answered, kept=count - left.answered)
    for number, why in left.defects:
        found.add("requests", number, "defect", why)
    return found
