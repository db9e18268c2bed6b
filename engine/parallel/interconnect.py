"""How fast the ranks of a split model exchange what they computed, measured between them at load."""

import math
import time
from functools import partial

import torch

from engine.parallel.group import Group
from engine.trace.records import Interconnect

MESSAGES = tuple(4096 << 2 * i for i in range(6))  # bytes, up to 4 MiB
WIDTH = 1024  # values of a row
CALLS, MOST = 32, 4 << 20  # of each size so many, or what sends so many bytes


def measure_interconnect(group: Group, device: torch.device, dtype: torch.dtype) -> Interconnect:
    """All ranks call it at once: they sum messages of each size as they sum what layers computed. A rate is the bytes
    that a rank hands over by the seconds until it has the sum, of the quickest call: whoever comes last waits for
    nobody. Fails as calls of the group do."""
    begun, rates = time.perf_counter(), []
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    for size in MESSAGES:
        x, fastest = torch.zeros(size // (WIDTH * dtype.itemsize), WIDTH, dtype=dtype, device=device), math.inf
        wait()
        for _ in range(1 + min(max(MOST // size, 4), CALLS)):
            since = time.perf_counter()
            group.sum(x)
            wait()
            fastest = min(fastest, time.perf_counter() - since)
        rates.append(size / fastest)
    way = "loopback" if group.name == "gloo" else group.name
    return Interconnect(way, MESSAGES, tuple(rates), time.perf_counter() - begun)
