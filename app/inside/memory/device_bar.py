"""The device's memory as a bar: the whole, below it what this process takes, enlarged, and how the ranks of a split
model share it."""

import math

from PySide6.QtCore import QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QPainter, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.inside.memory.area import fill_kinds
from app.inside.memory.series import KINDS, Moment
from app.language import tr
from app.plot import patterns
from app.plot.inked import inked
from app.session.memory.device import DeviceBill, RankBill, about, title_of
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from app.words import bytes_words, rank_title

GAP = 12
MOST = 8  # ranks that have a line


class DeviceBar(Painted):
    """Two bars and their legend in as many lines as there is room for."""

    face = Face(11)

    def __init__(self) -> None:
        super().__init__("memory_device", tr("Device memory"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.bill: DeviceBill | None = None
        self._moment: Moment | None = None
        self._parts: list[tuple[QRectF, str]] = []
        self._said: object = None

    @property
    def pitch(self) -> int:
        return math.ceil(self.face.height) + theme.px(1)

    def lines_needed(self, width: int) -> int:
        """How many lines the legend takes."""
        return len(self._flow(width))

    @property
    def _whole(self) -> bool:
        """Whether there is a bar of all the device: what others hold is nothing for a stage."""
        return self.bill is not None and self.bill.total > 0 and not theme.presenting()

    @property
    def _high(self) -> int:
        """Pixels of the own bar."""
        return theme.px(26 if theme.presenting() else 12)

    def height_of(self, lines: int) -> int:
        bars = self._high + (theme.px(13) if self._whole else 0)
        return bars + (theme.px(4) + (lines + len(self._ranks)) * self.pitch if lines else 0)

    def _rank_title(self, rank: int) -> str:
        return rank_title(rank, self.bill is not None and self.bill.apart)

    @property
    def _ranks(self) -> tuple[RankBill, ...]:
        """Those that have a line."""
        return self.bill.ranks[:MOST] if self.bill is not None else ()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(280), self.height_of(2))

    def show_bill(self, bill: DeviceBill | None, moment: Moment | None) -> None:
        said = (bill, moment)
        if said != self._said:
            self._said, self.bill, self._moment = said, bill, moment
            counts = ", ".join(f"{item.title} {bytes_words(item.count)}" for item in bill.items) if bill else ""
            counts += "".join(f". {self._rank_title(i)}: {rank.words}" for i, rank in enumerate(self._ranks))
            self.setAccessibleDescription(counts + (f". {bill.source}" if bill is not None else ""))
            self.update()

    def _flow(self, width: int, brief: bool = False) -> list[list[tuple[float, str, str]]]:
        """The legend's lines: (x, kind, words). A `brief` one tells the whole alone."""
        bill, px = self.bill, theme.px
        if bill is None:
            return []
        box = self._box() + px(5)
        items = bill.own_items if theme.presenting() else bill.items
        words = [(item.kind, f"{item.title} {bytes_words(item.count)}") for item in items]
        if not theme.presenting():
            whole = tr("of {bytes}, {source}", bytes=bytes_words(bill.total), source=bill.source)
            words.append(("", whole if bill.total else bill.source))
        if brief and bill.total:
            words = [("weights", tr("process {bytes}", bytes=bytes_words(bill.own))), *words[-2:]]
        lines: list[list[tuple[float, str, str]]] = [[]]
        x = 0.0
        for kind, text in words:
            wide = self.face.width(text) + (box if kind else 0)
            if lines[-1] and x + wide > width:
                lines.append([])
                x = 0.0
            lines[-1].append((x, kind, text))
            x += wide + px(GAP)
        return lines

    def _box(self) -> int:
        return round(self.face.cap) + theme.px(1)

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, bill = theme.current(), theme.px, self.bill
        painter.fillRect(self.rect(), t.panel)
        self._parts = []
        if bill is None:
            return
        y, width = 0.0, float(self.width())
        if self._whole:
            high = px(6)
            own, others = (n / bill.total * width for n in (bill.own, bill.other))
            own = min(max(own, px(2)), width)
            others = min(max(others, px(2)) if bill.other else 0.0, width - own)
            free = QRectF(own + others, 0, width - own - others, high)
            mine = tr("this process {bytes}", bytes=bytes_words(bill.own))
            self._part(painter, QRectF(0, 0, own, high), "own", mine)
            self._part(painter, QRectF(own, 0, others, high), "other", self._tip("others", bill.other))
            self._part(painter, free, "free", self._tip("free", bill.free))
            y = px(13)
            lens = (QPointF(0, high), QPointF(own, high), QPointF(width, y), QPointF(0, y))
            with inked(painter, t.hairline):
                painter.drawPolygon(QPolygonF(lens))
        self._own(painter, QRectF(0, y, width, self._high))
        y += self._high + px(4)
        y = self._paint_ranks(painter, y)
        lines = self._flow(self.width())
        if y + len(lines) * self.pitch > self.height() + 1:
            lines = self._flow(self.width(), brief=True)
        for line in lines:
            if y + self.pitch > self.height() + 1:
                break
            for x, kind, text in line:
                if kind:
                    top = round(y + self.face.ascent - self._box() + px(0.5))
                    patterns.fill(painter, QRectF(x, top, self._box(), self._box()), kind)
                    x += self._box() + px(5)
                self.face.say(painter, x, y + self.face.ascent, self.face.cut(text, width - x), t.secondary)
            y += self.pitch

    def _own(self, painter: QPainter, box: QRectF) -> None:
        """Weights, the pool by its kinds, and what else the process holds."""
        bill = self.bill
        assert bill is not None
        whole, gap = max(1, sum(item.count for item in bill.own_items)), theme.px(1)
        x = 0.0
        for item in bill.own_items:
            width = item.count / whole * box.width()
            part = QRectF(x, box.top(), max(1.0, width - gap), box.height())
            x += width
            if not item.count:
                continue
            pool = item.name == "KV pool"
            self._part(painter, part, "free" if pool else item.kind, self._tip(item.name, item.count))
            if pool and self._moment is not None and self._moment.pool:
                fill_kinds(painter, part, self._moment, KINDS, self._moment.pool, 1.0)

    def _paint_ranks(self, painter: QPainter, y: float) -> float:
        """A line of each, to one scale, where all have room; returns where they end."""
        ranks, px, face, ink = self._ranks, theme.px, self.face, theme.current().secondary
        if not ranks or y + len(ranks) * self.pitch > self.height() + 1:
            return y
        titles = [self._rank_title(number) for number in range(len(ranks))]
        left = max(map(face.width, titles)) + px(8)
        right = max(face.width(rank.words) for rank in ranks) + px(8)
        room = self.width() - left - right
        if room < px(40):  # the words are in the tips then
            right, room = 0.0, self.width() - left
        most = max(1, *(rank.own for rank in ranks))
        for title, rank in zip(titles, ranks):
            face.say(painter, 0, y + face.ascent, title, ink)
            tip, x = f"{title}: {rank.words}", left
            for kind, count in (("weights", rank.weights), ("used", rank.kv_pool)):
                wide = count / most * room
                box = QRectF(x, round(y + px(2)), max(1.0, wide - px(1)), self.pitch - px(4))
                self._part(painter, box, kind, tip)
                x += wide
            if right:
                face.say(painter, self.width(), y + face.ascent, rank.words, ink, before=1)
            y += self.pitch
        return y

    def _part(self, painter: QPainter, box: QRectF, kind: str, tip: str) -> None:
        if kind == "own":
            painter.fillRect(box, theme.current().secondary)
        else:
            patterns.fill(painter, box, kind)
        self._parts.append((box, tip))

    def _tip(self, name: str, count: int) -> str:
        bill = self.bill
        merged = name == "runtime" and bill is not None and bill.activations is None
        held = tr("what this process holds besides, activations included")
        return f"{title_of(name)} {bytes_words(count)}: {held if merged else about(name)}"

    def tip(self, at: QPointF) -> str:
        return next((tip for box, tip in self._parts if box.contains(at)), "")
