"""What lies in host memory, a square each, below the pool: blocks of preempted requests, and forgotten prefixes."""

import math
from typing import NamedTuple

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.contiguous import hatch
from app.inside.kv_map.state import CACHED, FREE, KvState
from app.inside.kv_map.tables import SAMPLES
from app.language import digits, tr, trn
from app.plot.inked import mixed
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

SIDE, GAP, AFTER = 8, 2, 5  # pixels of the design: a square, between two of one run, and between runs
LINES, NAMED = 3, 8  # at most: lines, and runs by name
TITLE, NONE = tr("on the host"), tr("on the host: none")


class Run(NamedTuple):
    """Blocks of one sample that waits, or that keep what one request's prompt begins with (CACHED: nobody knows
    whose)."""

    request: int
    blocks: int
    prefix: bool

    def words(self) -> str:
        """ "#4: 5 blocks", "prefix of #4: 5 blocks"."""
        if not self.prefix:
            return trn("#{request}: {count:,} block", "#{request}: {count:,} blocks", self.blocks, request=self.request)
        if self.request == CACHED:
            return trn("prefixes: {count:,} block", "prefixes: {count:,} blocks", self.blocks)
        return trn(
            "prefix of #{request}: {count:,} block",
            "prefix of #{request}: {count:,} blocks",
            self.blocks,
            request=self.request,
        )

    def tip(self) -> str:
        if self.prefix:
            kept = tr("the pool has forgotten it, and here it stays until it is asked for again, or makes room itself")
            return f"{self.words()}: {kept}"
        return trn(
            "request {request:,}: {count:,} block in host memory until it goes on",
            "request {request:,}: {count:,} blocks in host memory until it goes on",
            self.blocks,
            request=self.request,
        )


def runs(state: KvState) -> list[Run]:
    """Of samples that wait in the order of their requests, then of prefixes by who computed them."""
    waiting = [Run(key // SAMPLES, blocks, prefix=False) for key, blocks in sorted(state.swapped.items())]
    writers, counts = np.unique(state.kept[state.kept != FREE], return_counts=True)
    return waiting + [Run(*run, prefix=True) for run in zip(writers.tolist(), counts.tolist())]


class HostStrip(Painted):
    """A line, or some where many prefixes may be kept; what has no room in them is counted at the end."""

    face = Face(11)

    def __init__(self) -> None:
        super().__init__("kv_host")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._runs: list[Run] = []
        self._kept = 0  # how many blocks may keep prefixes
        self._lines = 1
        self._places: list[tuple[QRectF, int]] = []  # where which of them is drawn

    def show_state(self, state: KvState) -> None:
        told = runs(state)
        self._kept = state.hosts if state.offloads else 0
        self._wrap()
        if told != self._runs:
            self._runs = told
            self.setAccessibleName(tr("Blocks in host memory: {blocks}", blocks=self.words()))
            self.update()

    def words(self) -> str:
        """ "#4: 5 blocks, prefix of #5: 4 blocks", the first of them by name, or that there are none."""
        told = [run.words() for run in self._runs[:NAMED]]
        if more := sum(run.blocks for run in self._runs[NAMED:]):
            told.append(trn("{count:,} block more", "{count:,} blocks more", more))
        return ", ".join(told) or tr("none")

    @property
    def _begin(self) -> float:
        return self.face.width(TITLE) + theme.px(8)

    def _wrap(self) -> None:
        a_line = max(1, int((self.width() - self._begin) / theme.px(SIDE + GAP)))
        lines = max(1, min(LINES, math.ceil(self._kept / a_line)))
        if lines != self._lines:
            self._lines = lines
            self.updateGeometry()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._wrap()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), round(self._lines * self.face.height) + theme.px(2))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        face, t, height = self.face, theme.current(), self.height() / self._lines
        side, step, begin = theme.px(SIDE), theme.px(SIDE + GAP), self._begin
        face.say(painter, 0, height / 2 + face.cap / 2, TITLE if self._runs else NONE, t.secondary)
        last, left = self._lines - 1, sum(run.blocks for run in self._runs)
        x, line, self._places = begin, 0, []
        for i, run in enumerate(self._runs):
            blocks = run.blocks
            while blocks:
                room = self.width() - (face.width("+ 9,999") + theme.px(AFTER) if line == last else 0)
                shown = min(blocks, max(0, int((room - x + theme.px(GAP)) / step)))
                top = round((line + 0.5) * height - side / 2)
                for n in range(shown):
                    self._square(painter, run, QRectF(x + n * step, top, side, side))
                if shown:
                    self._places.append((QRectF(x, line * height, shown * step, height), i))
                x, left, blocks = x + shown * step, left - shown, blocks - shown
                if blocks and line == last:
                    break
                if blocks:
                    x, line = begin, line + 1
            if blocks:
                break
            x += theme.px(AFTER - GAP)
        if left:
            x += theme.px(AFTER - GAP)
            face.say(painter, x, (line + 0.5) * height + face.cap / 2, digits(f"+ {left:,}"), t.secondary)

    @staticmethod
    def _square(painter: QPainter, run: Run, box: QRectF) -> None:
        """A prefix is nobody's: hatched, as what is cached in the pool is, in the colour of who computed it."""
        t = theme.current()
        color = t.secondary if run.request == CACHED else theme.request_color(run.request)
        if run.prefix:
            painter.fillRect(box, mixed(color, 0.24))
            hatch(painter, box, color, step=4)
        else:
            painter.fillRect(box, color)

    def tip(self, at: QPointF) -> str:
        """What the square is of, else all of them."""
        for box, i in self._places:
            if box.contains(at):
                return self._runs[i].tip()
        return tr("Blocks of preempted requests and of prefixes in host memory: {blocks}", blocks=self.words())
