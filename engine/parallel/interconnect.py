"""How fast the ranks of a split model exchange what they computed, measured between them at load."""

import math
import time

import torch

from engine.parallel.group import Group
from engine.trace.records import Interconnect

MESSAGES = tuple(4096 << 2 * i for i in range(6))  # bytes, up to 4 MiB
WIDTH = 1024  # values of a row
ROUNDS, MOST = 3, 2 << 20  # the fastest of so many, each of calls that send about as many bytes


def measure_interconnect(group: Group, dtype: torch.dtype) -> Interconnect:
    """All ranks call it at once: they sum messages of each size as they sum what layers computed, and a rate is the
    bytes that one rank hands over by the seconds until it has the sum. Fails as calls of the group do."""
    begun, rates = time.perf_counter(), []
    for size in MESSAGES:
        x = torch.zeros(size // (WIDTH * dtype.itemsize), WIDTH, dtype=dtype)
        calls, fastest = min(max(MOST // size, 2), 16), math.inf
        for _ in range(ROUNDS):
            group.sum(x)  # until then they come one after another
            since = time.perf_counter()
            for _ in range(calls):
                group.sum(x)
            fastest = min(fastest, (time.perf_counter() - since) / calls)
        rates.append(size / fastest)
    way = "loopback" if group.name == "gloo" else group.name
    return Interconnect(way, MESSAGES, tuple(rates), time.perf_counter() - begun)
