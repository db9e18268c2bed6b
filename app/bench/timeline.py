"""How long the timeline takes to draw while a person pans and zooms over a long run."""

from time import perf_counter

import numpy as np
from PySide6.QtWidgets import QApplication

from app.bench.frames import spread
from app.bench.synthetic_lanes import lane_trace
from app.inside.timeline.slots import Timeline
from engine.trace import Record, Step

ROW_STEPS = 200_000
SLOTS = 64
SIZE = (1600, 420)
ZOOMS = 16
DEEPEST = 1 / 2000
MODES = ("static", "continuous")


def lane_of(mode: str, rows: int) -> list[Record]:
    """A generated lane, cut off after the step that makes it so many row-steps."""
    shortest, longest = 80, 160
    records = lane_trace(mode, slots=SLOTS, requests=1 + rows // shortest, output=(shortest, longest))
    taken = np.cumsum([record.rows if isinstance(record, Step) else 0 for record in records])
    return records[: int(np.searchsorted(taken, rows)) + 1]


def timeline_frames(rows: int = ROW_STEPS) -> dict[str, float]:
    """Zooms in from the whole run and out again, and pans at every zoom; each view is one frame, drawn at once.

    Static batching has few runs and many held rows; in a continuous lane prompts cut the decodes of every slot, so
    that nearly every row-step is a run. Milliseconds a frame over both, what each took at worst, and to feed one step.
    """
    frames: dict[str, list[float]] = {}
    fed = []
    for mode in MODES:
        records = lane_of(mode, rows)
        timeline = Timeline()
        timeline.resize(*SIZE)
        begun = perf_counter()
        timeline.feed(records)
        fed.append((perf_counter() - begun) / timeline.cells.steps)
        timeline.show()
        while not timeline.windowHandle().isExposed():
            QApplication.processEvents()
        frames[mode] = [_frame(timeline, *view) for view in _views(timeline.cells.end)]
        timeline.hide()
        timeline.deleteLater()
    together = [ms for each in frames.values() for ms in each]
    modes = {f"{mode}_p95_ms": spread(each)["p95_ms"] for mode, each in frames.items()}
    return {"row_steps": rows, "frames": len(together), **spread(together), "feed_us": 1e6 * max(fed), **modes}


def _views(end: float) -> list[tuple[float, float]]:
    """The seconds in sight, frame by frame."""
    spans = end * np.geomspace(1.0, DEEPEST, ZOOMS)
    views = []
    for span in (*spans, *spans[::-1]):
        for share in (0.3, 0.32, 0.34, 0.7):
            begin = max(0.0, share * end - span / 2)
            views.append((begin, begin + span))
    return views


def _frame(timeline: Timeline, begin: float, end: float) -> float:
    """Milliseconds from a new range to its last pixel."""
    begun = perf_counter()
    timeline.set_range(begin, end)
    timeline.repaint()
    return (perf_counter() - begun) * 1e3
