"""What the chosen model takes of its device's memory: a bar with its items and their figures, and how many requests of
a length the KV pool has room for."""

import math
from collections.abc import Callable

from PySide6.QtCore import QPointF, QRect, QRectF, QSignalBlocker, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import storage
from app.language import tr, trn
from app.plot import patterns
from app.session.memory.device import DeviceBill, Item, device_bill, lengths
from app.session.memory.estimate import Estimate
from app.ui.controls import DropDown
from app.ui.labels import label
from app.ui.layout.boxes import column, held, row
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from app.words import bytes_words
from engine import EngineConfig
from engine.memory import kv_capacity
from engine.trace import Header

LENGTH_KEY = "model/request length"
CERTAIN = ("other", "free")  # kinds; known even where the rest is estimated
CONTEXT = 0  # stands for the model's own, whatever it is
BAR, GAP, APART = 10, 6, 10  # pixels of the design: the bar's height, below it, between two columns


class BillBar(Painted):
    """One bar over the whole memory, and each item's pattern, name and figure, in two columns where there is room."""

    face = Face(12)

    def __init__(self) -> None:
        super().__init__("model_bill_bar")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.items: list[Item] = []
        self._total, self._sign, self._end = 0, "", 0

    def show_items(self, items: list[Item], total: int, sign: str = "", end: int = 0) -> None:
        """`sign` stands before each figure: "~" where they are estimated. `end`: where the device's memory ends, if it
        has less than all the items take."""
        self.items, self._total, self._sign, self._end = items, total, sign, end if end < total else 0
        words = ", ".join(f"{item.title} {self._figure(item)}" for item in items)
        self.setAccessibleName(tr("Memory: {items}, of {total}", items=words, total=bytes_words(total)))
        self.restyle()

    def _figure(self, item: Item) -> str:
        return f"{'' if item.kind in CERTAIN or not item.count else self._sign}{bytes_words(item.count)}"

    # -- places ---------------------------------------------------------------------------------------------------

    @property
    def _pitch(self) -> int:
        return math.ceil(self.face.height) + theme.px(3)

    @property
    def _box(self) -> int:
        return round(self.face.cap) + theme.px(1)

    def columns(self, width: float) -> list[tuple[float, float, list[Item]]]:
        """Left edge, width and items of each column."""
        half = -(-len(self.items) // 2)
        parts = [self.items[:half], self.items[half:]]
        needed = [max(map(self._needed, part), default=0.0) for part in parts]
        if sum(needed) + theme.px(APART) > width:
            return [(0.0, width, self.items)]
        spare = (width - theme.px(APART) - sum(needed)) / 2
        first = needed[0] + spare
        return [(0.0, first, parts[0]), (first + theme.px(APART), needed[1] + spare, parts[1])]

    def _needed(self, item: Item) -> float:
        sign = "" if item.kind in CERTAIN else self._sign
        figure = max(self.face.width(self._figure(item)), self.face.width(f"{sign}000 MB"))
        return self._box + theme.px(5) + self.face.width(item.title) + theme.px(6) + figure

    def sizeHint(self) -> QSize:
        rows = max(len(items) for *_, items in self.columns(self.width()))
        return QSize(theme.px(160), theme.px(BAR) + (theme.px(GAP) + rows * self._pitch if rows else 0))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def resizeEvent(self, event: object) -> None:
        if self.sizeHint().height() != self.height():
            self.updateGeometry()

    def segments(self) -> list[tuple[QRectF, Item]]:
        """Where each item is on the bar; none is too thin to be seen."""
        whole, x, found = float(self.width()), 0.0, []
        for item in self.items:
            wide = max(item.count / self._total * whole, theme.px(2)) if item.count else 0.0
            wide = whole - x if item.kind == "free" else min(wide, whole - x)
            found.append((QRectF(x, 0, wide, theme.px(BAR)), item))
            x += wide
        return found

    def _lines(self) -> list[tuple[QRectF, Item]]:
        top = theme.px(BAR) + theme.px(GAP)
        return [
            (QRectF(left, top + row * self._pitch, wide, self._pitch), item)
            for left, wide, items in self.columns(self.width())
            for row, item in enumerate(items)
        ]

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, face = theme.current(), theme.px, self.face
        area = QRectF(0, 0, self.width(), px(BAR))
        shape = QPainterPath()
        shape.addRoundedRect(area, px(2), px(2))
        painter.setClipPath(shape)
        for part, item in self.segments():
            if item.kind != "free" and item.count:
                gap = 1.0 if part.width() > px(3) else 0.0
                patterns.fill(painter, part.adjusted(0, 0, -gap, 0), item.kind)
        painter.setClipping(False)
        painter.setPen(QPen(theme.over(t.edge, t.panel), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), px(2), px(2))
        if self._end:
            x = self.width() * self._end / self._total
            painter.fillRect(QRectF(x - px(2), 0, px(4), area.height()), t.panel)
            painter.fillRect(QRectF(x - px(1), 0, px(2), area.height() + px(3)), t.warn)
        for line, item in self._lines():
            baseline, figure = line.top() + (line.height() - face.height) / 2 + face.ascent, self._figure(item)
            box = QRectF(line.left(), round(baseline - self._box + px(0.5)), self._box, self._box)
            patterns.fill(painter, box, item.kind)
            face.say(painter, box.right() + px(5), baseline, item.title, t.secondary)
            face.say(painter, line.right(), baseline, figure, t.text, before=1)

    def tip(self, at: QPointF) -> str:
        """What the item there is, in plain words; first where the memory ends, of what goes beyond."""
        end = self.width() * self._end / self._total if self._end else 0.0
        if end and abs(at.x() - end) < theme.px(4) and at.y() < theme.px(BAR + GAP):
            return tr("All there is: {bytes}", bytes=bytes_words(self._end))
        for part, item in (*self.segments(), *self._lines()):
            if part.contains(at):
                share = f", {100 * item.count / self._total:.0f} %" if self._total else ""
                return f"{item.title} {self._figure(item)}{share}: {item.about}"
        return ""


class ModelBill(QWidget):
    """The bill of the loaded model, or an estimate of the chosen one. The length of a request is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("model_bill")
        self.memory = label("", "figure", "model_memory")
        self.bar = BillBar()
        self.holds = label("", "secondary", "model_holds")
        self.length = DropDown("model_length", said=tr("Length of a request"))
        self.length.setMinimumContentsLength(4)
        self._holds: Callable[[int], int] = lambda length: 0
        self._context, self._running = 0, 1
        self._row = held(row(self.holds, (self.length, 1), spacing=6))
        head = row(label(tr("Memory"), "secondary"), None, self.memory)
        self.setLayout(column(head, self.bar, self._row, spacing=8))
        self._row.hide()
        self.length.activated.connect(lambda: storage.settings().setValue(LENGTH_KEY, self.length.currentData()))
        self.length.currentIndexChanged.connect(self._say_holds)

    # -- what is shown --------------------------------------------------------------------------------------------

    def show_loaded(self, header: Header) -> None:
        """The bill at load."""
        bill, config, context = device_bill(header, None), header.config, header.model.context
        own = bytes_words(bill.own)
        self.memory.setText(tr("{own} of {all}", own=own, all=bytes_words(bill.total)) if bill.total else own)
        self.bar.show_items(bill.items, bill.total or bill.own)

        def holds(length: int) -> int:
            return kv_capacity(header.blocks, config.block_size, length)

        self._offer(holds if config.mode != "recompute" else None, context, config.slots)

    def show_estimate(self, found: Estimate, config: EngineConfig) -> None:
        """What the chosen model would take, or the memory as it is where nothing is known of a model."""
        fit, others = found.fit, found.total - found.free - found.runtime
        if fit is None:
            self.memory.setText(tr("{bytes} free", bytes=bytes_words(found.free)))
            bill = DeviceBill(0, 0, 0, 0, others, found.free, found.total)
            self.bar.show_items(bill.items[-2:], found.total)
            self._offer(None, 0, 1)
            return
        taken = fit.weights + fit.pool + fit.all_states + fit.activations + found.runtime
        self.memory.setText(f"~{bytes_words(taken)} · {tr('fits') if fit.fits else tr('does not fit')}")
        free = max(0, found.total - others - taken)
        parts = fit.weights, fit.pool, fit.activations, found.runtime, others, free, found.total
        bill = DeviceBill(*parts, states=fit.all_states)
        items = [item for item in bill.items if item.kind != "runtime" or item.count]
        self.bar.show_items(items, max(found.total, others + taken), "~", found.total)
        holds = fit.requests if fit.fits and config.mode != "recompute" else None
        self._offer(holds, found.context, config.slots)

    def _offer(self, holds: Callable[[int], int] | None, context: int, running: int) -> None:
        """Lengths that a request of this model may have; `holds` tells how many of a length the pool has room for, and
        is None where there is no pool."""
        self._holds, self._context, self._running = holds or (lambda length: 0), context, running
        self._row.setVisible(holds is not None)
        with QSignalBlocker(self.length):
            self.length.clear()
            for tokens in lengths(context):
                whole = tokens == context
                self.length.addItem(
                    tr("context") if whole else tr("{tokens:,} tokens", tokens=tokens), CONTEXT if whole else tokens
                )
            kept = self._kept_place()
            self.length.setCurrentIndex(kept if kept >= 0 else self.length.count() - 1)
        self._say_holds()

    def _kept_place(self) -> int:
        """Where the length chosen last time stands; -1 where it is not offered."""
        kept = str(storage.settings().value(LENGTH_KEY, CONTEXT))
        return next((i for i in range(self.length.count()) if str(self.length.itemData(i)) == kept), -1)

    def _say_holds(self) -> None:
        tokens = self.length.currentData() or self._context
        if not tokens:
            return
        requests = self._holds(tokens)
        self.holds.setText(trn("Fits {count:,} request ×", "Fits {count:,} requests ×", requests))
        room = trn(
            "The KV pool has room for {count:,} request of {tokens:,} tokens at once, prompt and answer together.",
            "The KV pool has room for {count:,} requests of {tokens:,} tokens at once, prompt and answer together.",
            requests,
            tokens=tokens,
        )
        most = tr("At most {running:,} run at once, as set under Batching.", running=self._running)
        tip = f"{room}\n{most}"
        self._row.setToolTip(tip)
        self.length.setAccessibleDescription(tip)
