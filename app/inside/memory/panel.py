"""The memory bill: where the KV pool's and the device's bytes go, over time and at the cursor."""

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QRect
from PySide6.QtGui import QPainter, QResizeEvent

from app.inside.look import Look
from app.inside.memory.area import MemoryArea
from app.inside.memory.device_bar import DeviceBar
from app.inside.memory.figures import WIDTH, MemoryLedger
from app.inside.memory.history import MemoryHistory
from app.inside.memory.series import KIND_TITLES, KINDS, MemorySeries, Moment
from app.inside.panel import COMING, InsightPanel, tool_button
from app.language import tr
from app.playback.scope import ROUNDING, Scope
from app.plot.folds import NONE, idle_folds
from app.plot.scales import nice_end
from app.session.memory.device import captured_words, device_bill
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.painted import Painted
from app.ui.tables.facts import Cell, Facts
from app.words import duration, kv_words
from engine.trace import Header, Record

MINUTE = 60.0
WIDE = 540  # pixels of the design from which on numbers stand beside the picture
FACT_ROWS = 2000
LEAST_STAGED = 52  # pixels of the design: a lower area is not drawn on a stage
EMPTY = tr("Where the KV pool's bytes go over time. Nothing has run yet: send a prompt.")
NO_CACHE = tr("recompute keeps no KV cache: the whole sequence is computed again for every token.")
PUBLISHED = tr(
    "Published: contiguous systems put 20–38 % of their KV memory to use, paging 96 % (Kwon et al. 2023, fig. 2)"
)
FREE = (*KINDS, "free")
FACTS = (
    *(tr("time s"), tr("step"), *(tr("{kind} tokens", kind=KIND_TITLES[kind]) for kind in FREE)),
    *(tr("{kind} bytes", kind=KIND_TITLES[kind]) for kind in FREE),
    *(tr("contiguous to max_tokens (computed) bytes"), tr("contiguous to context (computed) bytes")),
    *(tr("paged (computed) bytes"), tr("running")),
)


def percent(share: float) -> str:
    """ "59 %", below ten "3.9 %"."""
    return f"{100 * share:.0f} %" if share >= 0.0995 or not share else f"{100 * share:.1f} %"


def summary_words(series: MemorySeries, moment: Moment | None) -> tuple[str, ...]:
    """The line at the panel's head, from its longest wording to its shortest."""
    if not series.keeps:
        return (tr("no KV cache in this mode"), tr("no KV cache"))
    if moment is None or not series.pool or series.header is None:
        return ("",)
    words, header = held_words(series, moment), series.header
    return (f"{words[0]} · {kv_words(header.model.kv_dtype, header.kv_token_bytes, header.model.state_bytes)}", *words)


def held_words(series: MemorySeries, moment: Moment) -> tuple[str, ...]:
    """How much of the pool is used, and of what is held not."""
    used, shares = percent(moment.used / series.pool), moment.shares
    if shares is None:
        run = series.shares_until(series.count - 1)
        if run is None:
            return (tr("{share} of the pool used", share=used), tr("{share} used", share=used))
        waste = percent(run.waste)
        return (
            tr("nothing is held · waste {waste} of what was held, over the run", waste=waste),
            tr("{share} used · run: waste {waste}", share=used, waste=waste),
            tr("run: waste {waste}", waste=waste),
        )
    waste = percent(shares.waste)
    return (
        tr("{share} of the pool used · waste {waste} of what is held", share=used, waste=waste),
        tr("{share} used · waste {waste}", share=used, waste=waste),
        tr("waste {waste}", waste=waste),
    )


class MemoryPicture(Painted):
    """The drawn side: area, ledger and device, beside or below each other as the room allows."""

    def __init__(self) -> None:
        super().__init__("memory_picture", tr("Memory"))
        self.area, self.ledger, self.device = MemoryArea(), MemoryLedger(), DeviceBar()
        for part in (self.area, self.ledger, self.device):
            part.setParent(self)

    def restyle(self) -> None:
        super().restyle()
        self.place()

    def place(self) -> None:
        """Gives each part its room: the area shrinks first, then the device's words go, then its bar, then numbers."""
        px, width, height, gap = theme.px, self.width(), self.height(), theme.px(6)
        if theme.presenting():
            self._place_on_stage(gap)
            return
        wide = width >= px(WIDE)
        left, least = width - (px(WIDTH) + px(16) if wide else 0), px(72 if wide else 60)
        device_of, ledger_of = self.device.height_of, self.ledger.height_of
        needed = self.device.lines_needed(left)

        def fits(ledger: int, device: int) -> bool:
            return least + sum(gap + part for part in (ledger, device) if part) <= height

        ledger = 0 if wide else ledger_of(9) if fits(ledger_of(9), device_of(needed)) else ledger_of(8)
        devices = (device_of(lines) for lines in sorted({needed, 1, 0}, reverse=True))
        device = next((device for device in devices if fits(ledger, device)), 0)
        ledger = next((each for each in (ledger, ledger_of(5) - px(5)) if fits(each, 0)), 0)
        rest = height - (gap + device if device else 0)
        if wide:
            self.area.setGeometry(0, 0, left, rest)
            self.ledger.setGeometry(left + px(16), 0, px(WIDTH), height)
        else:
            area = rest - (gap + ledger if ledger else 0)
            self.area.setGeometry(0, 0, width, area)
            self.ledger.setGeometry(0, area + gap, width, ledger)
        self.device.setGeometry(0, height - device, left, device)
        self.area.show()
        self.ledger.setVisible(wide or ledger > 0)
        self.device.setVisible(device > 0)

    def _place_on_stage(self, gap: int) -> None:
        """The device with all its words, and above it the area where it has room; no numbers."""
        width, height = self.width(), self.height()
        device = min(self.device.height_of(self.device.lines_needed(width)), height)
        area = height - device - gap
        drawn = area >= theme.px(LEAST_STAGED)
        self.area.setGeometry(0, 0, width, max(0, area))
        self.area.setVisible(drawn)
        self.device.setGeometry(0, height - device if drawn else (height - device) // 2, width, device)
        self.device.show()
        self.ledger.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.place()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(self.rect(), theme.current().panel)


class MemoryBill(InsightPanel):
    """Follows its scope; a hovered moment is read without going there."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "memory", tr("Memory"))
        self.history = MemoryHistory()
        self.whole = False
        self.folds = NONE  # the idle time that the axis folds
        self._begin = 0.0  # of the minute in sight on the axis, while the moment is an earlier one
        self._pointed: float | None = None
        self.span_button = tool_button("memory_span", "", tr("The last minute, or the whole run"))
        self.span_button.clicked.connect(self._on_span)
        self.head.insertWidget(self.head.count() - 1, self.span_button)
        Backstage(self, self.span_button)
        self.picture: MemoryPicture = MemoryPicture()
        self.area, self.ledger, self.device = self.picture.area, self.picture.ledger, self.picture.device
        self.set_picture(self.picture)
        self.area.hovered.connect(self._on_hovered)
        self.area.sought.connect(self._on_sought)
        self.area.stepped.connect(scope.step_by)

    def pose(self, look: Look) -> None:
        super().pose(look)
        self.whole = True

    # -- what the scope says --------------------------------------------------------------------------------------

    def take(self, records: Sequence[Record]) -> None:
        self.history.take(records)

    def adopt(self, known: MemoryHistory) -> bool:
        self.history = known
        return True

    @property
    def series(self) -> MemorySeries:
        return self.history.series

    def forget(self) -> None:
        self.history = MemoryHistory()
        self._pointed, self._begin, self.folds = None, 0.0, NONE

    def draw(self) -> None:
        series, scope = self.series, self.scope
        series.settle()
        moment, header = self.moment(), series.header
        cursor = None if scope.following else scope.moment
        compared = "to_limit" if series.paged else "paged"
        message = "" if series.keeps else NO_CACHE
        if not series.count:
            message = COMING if scope.begun else EMPTY
        self.folds = idle_folds(series.presence, scope.origin) if self.shared is None else NONE
        span = self.span()
        self.area.show_series(series, span, scope.origin, self.folds, self.last, "" if message else compared, message)
        self.area.point_at(cursor, self._pointed)
        self.ledger.show_moment(series, moment)
        self._show_device(header, moment)
        self._tell(moment)
        self._tell_span(span)

    def _show_device(self, header: Header | None, moment: Moment | None) -> None:
        bill, before = None, self.device.bill
        if header is not None:
            bill = device_bill(header, self.history.measured_at(self._time()))
        self.device.show_bill(bill, moment if bill is not None else None)
        if not bill or not before or (before.total > 0, before.source) != (bill.total > 0, bill.source):
            self.picture.place()

    def facts(self) -> Facts:
        series = self.series
        first, last = (series.place_at(moment) for moment in self.moments())
        first = max(0, first)
        every = max(1, -(-(last + 1 - first) // FACT_ROWS))
        columns = FACTS if every == 1 else (FACTS[0], tr("step (every {n:,}th)", n=every), *FACTS[2:])
        if last < first:
            return Facts(columns)
        places, size = slice(first, last + 1, every), series.token_bytes
        told = {name: series.values(name)[places] for name in (*KINDS, "to_limit", "to_context", "paged", "running")}
        told["free"] = np.asarray(series.pool - np.sum([told[kind] for kind in KINDS], axis=0, dtype=np.int64))
        times = (series.ended.values[places] - self.scope.origin).tolist()
        tokens = [told[kind].tolist() for kind in FREE]
        held_bytes = [(told[kind].astype(np.int64) * size).tolist() for kind in FREE]
        computed: list[list[Cell]] = [
            (told["to_limit"] * size).tolist(),
            (told["to_context"] * size).tolist() if series.context else [None] * len(times),
            (told["paged"] * size).tolist() if not series.paged else [None] * len(times),
        ]
        steps = series.values("step")[places].tolist()
        return Facts(columns, list(zip(times, steps, *tokens, *held_bytes, *computed, told["running"].tolist())))

    def row_chosen(self, row: int) -> None:
        rows = self.table.facts_model.facts.rows
        if 0 <= row < len(rows):
            self.scope.seek(float(rows[row][0] or 0.0) + self.scope.origin)

    # -- what is in sight -----------------------------------------------------------------------------------------

    @property
    def last(self) -> float:
        """When the last step ended that is known here."""
        return float(self.series.ended.values[-1]) if self.series.ended.count else self.scope.origin

    def _time(self) -> float:
        """The moment that the numbers are of."""
        return self._pointed if self._pointed is not None else min(self.scope.moment, self.last)

    def moment(self) -> Moment | None:
        """The pool under the pointer, or else at the cursor."""
        return self.series.at(self.series.place_at(self._time() + ROUNDING))

    def _place(self, moment: float) -> float:
        """Where a moment is on the axis."""
        return float(self.folds.values(moment - self.scope.origin))

    def span(self) -> tuple[float, float]:
        """The part of the axis in sight: everything, or a minute: the last one, or one with the cursor in it; or what
        is shared with others."""
        if self.shared is not None:
            return self.shared
        self.series.settle()
        ran, moment = self._place(self.last), self._place(self.scope.moment)
        if self.whole or ran <= MINUTE:
            end = nice_end(ran) if ran > 0 else 10.0
            return 0.0, (end if self.whole else min(end, MINUTE))
        if moment >= ran - MINUTE:
            # by whole pixels, so that what is drawn moves as one
            pixel = MINUTE / max(1.0, self.area.area().width())
            self._begin = math.ceil((ran - MINUTE) / pixel) * pixel
        elif not self._begin <= moment <= self._begin + MINUTE:
            self._begin = max(0.0, moment - MINUTE / 2)
        return self._begin, self._begin + MINUTE

    def moments(self) -> tuple[float, float]:
        """The seconds of the trace in sight."""
        begin, end = (self.scope.origin + self.folds.times(self.span())).tolist()
        return begin, end

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.stale()

    # -- words ----------------------------------------------------------------------------------------------------

    def _tell(self, moment: Moment | None) -> None:
        series = self.series
        self.summary.say(*summary_words(series, moment), "")
        self.setToolTip(self.tip(moment))

    def tip(self, moment: Moment | None) -> str:
        """The formulas, the run so far, and what is published."""
        lines = [
            tr("waste = (reserved + internal + external) / (used + reserved + internal + external) tokens"),
            tr("Each pixel shows the mean over its time; a step's values last until the next step's end."),
        ]
        so_far = self.series.shares_until(self.series.place_at(moment.time)) if moment is not None else None
        if so_far is not None:
            lines.insert(1, tr("KV waste of the run so far, mean over time: {share:.1%}", share=so_far.waste))
        if self.series.header is not None and (captured := captured_words(self.series.header)):
            lines.append(captured)
        return "\n".join([*lines, PUBLISHED])

    def _tell_span(self, span: tuple[float, float]) -> None:
        if not self.series.count:
            text = tr("last 60 s")
        elif self._pointed is not None:
            text = tr("at {time}", time=duration(max(0.0, self._pointed - self.scope.origin)))
        elif self.whole or self.shared is not None or self._place(self.last) <= MINUTE:
            text = tr("whole run")
        else:
            text = tr("last 60 s") if self.moments()[1] >= self.last else "60 s"
        if text != self.span_button.text():
            self.span_button.setText(text)

    # -- the person -----------------------------------------------------------------------------------------------

    def _on_hovered(self, time: float | None) -> None:
        self._pointed = None if time is None else min(max(time, self.scope.origin), max(self.last, self.scope.origin))
        self.stale()

    def _on_sought(self, time: float) -> None:
        if time >= self.last:
            self.scope.follow()
        else:
            self.scope.seek(max(time, self.scope.origin))

    def _on_span(self) -> None:
        self.whole = not self.whole
        self.stale()
