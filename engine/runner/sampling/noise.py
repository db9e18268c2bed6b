"""The noise that tokens are drawn with."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MASK, _WORD = (1 << 64) - 1, 0x9E3779B97F4A7C15


def noise(seeds: Sequence[int], branches: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """Uniform numbers in (0, 1), one for each key: three rounds of the SplitMix64 finalizer over it."""
    state = np.array([seed & _MASK for seed in seeds], np.uint64)
    state += np.uint64(_WORD * _WORD & _MASK)
    state = _mixed(state)
    for words in (branches, positions):
        state += (np.array(words, np.uint64) + np.uint64(1)) * np.uint64(_WORD)
        state = _mixed(state)
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) / (1 << 53)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
