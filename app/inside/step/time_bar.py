"""The time bar of a step: one strip from its launch to its end, and a small table of what each phase took."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from app.inside.phases import PHASE_TITLES
from app.inside.step.story import millis, percent
from app.inside.step.times import ABOUT, AFTER, ORDER, OTHER_AHEAD, StepTimes
from app.language import tr
from app.plot.inked import inked
from app.ui.look import theme
from app.ui.look.font_face import Face

STRENGTH = {
    "plan": 0.34,
    "draft": 0.75,
    "prepare": 0.52,
    "sample": 0.44,
    "commit": 0.6,
    AFTER: 0.26,
}  # of grey; others are outlined
HIGH, GAP, KEY = 18, 4, 3
APART = 6  # at least between two columns


@dataclass(frozen=True, slots=True)
class Cell:
    """A phase in the table: its lines, name first."""

    name: str
    lines: tuple[str, ...]
    box: QRectF


class StepBar:
    """Lays itself out for a width, then draws itself there. `matrices` and `attention` are the two parts of forward."""

    face, tiny = Face(12), Face(11)

    def lay(self, times: StepTimes, left: float, top: float, width: float, depth: int) -> float:
        """Places everything; returns the height. `depth`: how many steps are launched ahead."""
        self._times, self._depth = times, depth
        y = top + self._lay_table(left, top, width) + theme.px(5)
        self._lay_bar(QRectF(left, y, width, theme.px(HIGH)))
        return y + theme.px(HIGH) - top

    def _lay_table(self, left: float, top: float, width: float) -> float:
        """One row of all phases over three lines, or where that is too wide, rows of as many as fit over two lines."""
        line, key = round(self.tiny.height * 1.08), theme.px(KEY) + theme.px(2)
        names = [name for name in (*ORDER, AFTER) if name != "draft" or self._times.parts[name]]
        texts = [self._lines(name) for name in names]
        widths = [max(map(self.tiny.width, lines)) for lines in texts]
        gap = (width - sum(widths)) / (len(names) - 1)
        self._cells: list[Cell] = []
        if gap >= theme.px(APART):
            x = left
            for name, lines, wide in zip(names, texts, widths):
                self._cells.append(Cell(name, lines, QRectF(x, top, wide, key + 3 * line)))
                x += wide + gap
            return key + 3 * line
        pairs = [(title, " · ".join(part for part in amount if part)) for title, *amount in texts]
        apart, below = theme.px(APART), theme.px(5)
        needed = max(self.tiny.width(text) for pair in pairs for text in pair) + apart
        across = next((count for count in (4, 2) if count * needed <= width + apart), 1)
        high, pitch = key + 2 * line, (width + apart) / across
        for at, (name, pair) in enumerate(zip(names, pairs)):
            x, y = left + at % across * pitch, top + at // across * (high + below)
            self._cells.append(Cell(name, pair, QRectF(x, y, pitch - apart, high)))
        return -(-len(names) // across) * (high + below) - below

    def _name(self, name: str) -> str:
        return PHASE_TITLES["launch" if name == "forward" and self._times.launched else name]

    def _lines(self, name: str) -> tuple[str, str, str]:
        """The phase, how long it took and which share of the step's duration; the unit is said once, with the first."""
        title = tr("{phase}, ms", phase=self._name(name)) if name == ORDER[0] else self._name(name)
        if name == AFTER:
            return title, _number(self._times.record), tr("after")
        seconds = self._times.parts[name]
        return title, _number(seconds), percent(self._times.share(name)) if seconds else ""

    def _lay_bar(self, box: QRectF) -> None:
        times = self._times
        whole = sum(times.parts.values()) + times.record
        gap = theme.px(GAP) if times.record else 0
        scale = (box.width() - gap) / whole if whole > 0 else 0.0
        self._boxes: dict[str, QRectF] = {}
        x = box.left()
        for name, seconds in times.parts.items():
            if seconds * scale:
                self._boxes[name] = QRectF(x, box.top(), seconds * scale, box.height())
            x += seconds * scale
        if times.record:
            self._boxes[AFTER] = QRectF(x + gap, box.top(), times.record * scale, box.height())
        forward = self._boxes.get("forward", QRectF(box.left(), box.top(), 0, box.height()))
        split = forward.width() * (1 - times.attention_share)
        self.matrices = QRectF(forward.left(), forward.top(), split, forward.height())
        self.attention = forward.adjusted(split, 0, 0, 0)

    def draw(self, painter: QPainter) -> None:
        """Draws what was laid out."""
        t = theme.current()
        line, key = round(self.tiny.height * 1.08), theme.px(KEY)
        for cell in self._cells:
            self._fill(painter, QRectF(cell.box.left(), cell.box.top(), cell.box.width(), key), cell.name)
            baseline = cell.box.top() + key + theme.px(2) + self.tiny.ascent
            for at, text in enumerate(cell.lines):
                self.tiny.say(painter, cell.box.left(), baseline + at * line, text, t.text if at == 1 else t.secondary)
        for name, box in self._boxes.items():
            if name != "forward":
                self._fill(painter, box.adjusted(0.5, 0, -0.5, 0) if box.width() > 3 else box, name)
        painter.fillRect(self.matrices, t.accent)
        paint_attention(painter, self.attention)
        if self.attention.width() > 2:
            painter.fillRect(QRectF(self.attention.left() - 0.5, self.attention.top(), 1, theme.px(HIGH)), t.panel)
        words = PHASE_TITLES["launch"] if self._times.launched else tr("matrix products")
        if self.face.width(words) + 2 * theme.px(8) <= self.matrices.width():
            baseline = self.matrices.center().y() + self.face.middle
            self.face.say(painter, self.matrices.left() + theme.px(8), baseline, words, t.on_accent)

    def _fill(self, painter: QPainter, box: QRectF, name: str) -> None:
        """The sign of a phase: grey where the host works, outlined where it waits or nobody knows."""
        t = theme.current()
        if name == "forward":
            painter.fillRect(box, t.accent)
        elif name in STRENGTH:
            painter.fillRect(_seen(box), theme.faded(t.text, STRENGTH[name]))
        else:
            painter.fillRect(_seen(box), theme.faded(t.text, 0.10))
            if box.width() >= 3:
                style = Qt.PenStyle.SolidLine if name == "wait" else Qt.PenStyle.DotLine
                with inked(painter, line=QPen(theme.faded(t.text, 0.5), 1, style)):
                    painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))

    def tip(self, at: QPointF) -> str:
        """What is under the pointer, and how it is known."""
        boxes = [(cell.name, cell.box) for cell in self._cells]
        boxes += [(name, _seen(box).adjusted(-1, 0, 1, 0)) for name, box in self._boxes.items()]
        return next((self._about(name) for name, box in boxes if box.contains(at)), "")

    def _about(self, name: str) -> str:
        times = self._times
        if name == AFTER:
            return f"{self._name(name)}: {millis(times.record)}\n{ABOUT[AFTER]}"
        about = OTHER_AHEAD if name == "other" and self._depth else ABOUT[name]
        if name == "forward" and times.launched:
            about = tr("the model's kernels are launched; the GPU computes them while the host goes on")
        share = tr(
            "{percent:.1f} % of the step's {duration}", percent=100 * times.share(name), duration=millis(times.duration)
        )
        return f"{self._name(name)}: {millis(times.parts[name])}, {share}\n{about}"


def _number(seconds: float) -> str:
    """Milliseconds without their unit; from a second on with one."""
    return millis(seconds).removesuffix(" ms") if seconds else "–"


def _seen(box: QRectF) -> QRectF:
    """At least a pixel wide."""
    return box if box.width() >= 1 else QRectF(box.left(), box.top(), 1, box.height())


def paint_attention(painter: QPainter, box: QRectF) -> None:
    """The sign of attention: stripes that lie apart, as its lanes do."""
    if box.width() <= 0:
        return
    accent, pitch = theme.current().accent, box.height() / 5
    painter.fillRect(box, theme.faded(accent, 0.22))
    for i in range(3):
        painter.fillRect(QRectF(box.left(), box.top() + 2 * i * pitch, box.width(), pitch), theme.faded(accent, 0.8))
