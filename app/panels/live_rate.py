"""The one number for tokens a second: two places in the window never show different ones."""

from __future__ import annotations

from time import perf_counter
from weakref import WeakKeyDictionary

from app.bridge import Bridge

SLOT = 0.25
_samples: WeakKeyDictionary[Bridge, tuple[int, float]] = WeakKeyDictionary()


def live_rate(bridge: Bridge) -> float:
    """Output tokens of the last second, taken anew every quarter second and the same for all who ask in between.

    0 when every request has ended, whatever else the engine still tells.
    """
    slot = int(perf_counter() / SLOT)
    known = _samples.get(bridge)
    if known is None or known[0] != slot:
        known = _samples[bridge] = slot, bridge.tokens_per_second if bridge.busy else 0.0
    return known[1]
