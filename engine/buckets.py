"""The numbers of rows for which decode steps are captured as CUDA graphs. No torch."""

from __future__ import annotations

CLOSE, APART, WIDE = 8, 256, 64  # sizes are 8 apart up to 256 rows, and 64 apart beyond
MOST = 1024


def bucket_sizes(most: int) -> tuple[int, ...]:
    """The numbers of rows to capture, so that a step of up to `most` finds one that is not much larger."""
    few = [n for n in (1, 2, 4) if n < most]
    top = min(most, MOST)
    close = range(CLOSE, min(top, APART) + CLOSE, CLOSE) if top > 4 else [top]
    return tuple(sorted({*few, *close, *range(APART + WIDE, top + WIDE, WIDE)}))
