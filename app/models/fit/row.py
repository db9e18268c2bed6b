"""One row of the fit table: a quantization's bill on one line, what it is or why not on the next, and its button."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy

from app.models.fit.breakdown import holds_words, reason, row_words
from app.plot.scheme_mark import draw_scheme
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.labels import set_role
from app.ui.painted import Painted
from app.words import bytes_words
from engine.config import SCHEMES
from engine.memory import DeviceMemory, Fit

HEIGHT, HEAD, BUTTON, GAP = 48, 26, 76, 10  # pixels of the design
MADE_BY = "batchscope quantize"  # named where a checkpoint is missing that this command makes
MAKE = "Make an AWQ checkpoint of this model"
TIPS = {
    "name": "How the weights are held",
    "dtype": "The precision of all that is not quantized, of the arithmetic and of the KV cache",
    "weights": "Bytes of all weights in memory",
    "kv": "2 × layers × key and value heads × head dim × bytes",
    "activations": "What a step at the token budget takes besides",
    "pool": "What the engine gives its KV cache",
    "holds": "Requests of this length that the pool holds at once",
    "bar": "The device's memory: in use by others, weights, activations, KV pool, free",
}


@dataclass(frozen=True, slots=True)
class Column:
    """`least` pixels of the design; `order` in which they give way where there is no room, 0 never."""

    key: str
    title: str
    least: int
    right: bool = True
    order: int = 0


COLUMNS = (
    Column("name", "Quantization", 132, right=False),
    Column("dtype", "Precision", 66, right=False, order=3),
    Column("weights", "Weights", 62, order=6),
    Column("kv", "KV a token", 70, order=2),
    Column("activations", "Activations", 70, order=1),
    Column("pool", "KV pool", 62, order=5),
    Column("holds", "Requests × tokens", 116),
    Column("bar", "Memory", 96, right=False, order=4),
)


def place_columns(width: float) -> dict[str, tuple[float, float]]:
    """Left and width of each column that there is room for, button excluded; names and bars take what is left."""
    px = theme.px
    shown = list(COLUMNS)
    room = width - px(BUTTON) - px(GAP)

    def needed() -> float:
        return sum(px(column.least) for column in shown) + px(GAP) * (len(shown) - 1)

    for order in range(1, 7):
        if needed() <= room:
            break
        shown = [column for column in shown if column.order != order]
    spare = max(0.0, room - needed())
    bar = any(column.key == "bar" for column in shown)
    extra = {"name": spare * (0.3 if bar else 0.6), "bar": spare * 0.5 if bar else 0.0}
    each = (spare - sum(extra.values())) / max(1, len(shown) - (2 if bar else 1))
    places, x = {}, 0.0
    for column in shown:
        wide = px(column.least) + extra.get(column.key, each)
        places[column.key] = (x, wide)
        x += wide + px(GAP)
    return places


class FitHead(Painted):
    """The columns' titles."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("fit_head")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.restyle()

    def restyle(self) -> None:
        self.face = FontFace(theme.ui(11, 600))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(HEAD))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t, px = QPainter(self), theme.current(), theme.px
        painter.setFont(self.face.font)
        painter.setPen(t.secondary)
        places = place_columns(self.width() - 2 * px(8))
        for column in COLUMNS:
            if column.key in places:
                x, wide = places[column.key]
                words = self.face.cut(column.title, wide)
                x += px(8) + (wide - self.face.width(words) if column.right else 0)
                self.face.draw(painter, x, self.height() - px(9), words)
        painter.fillRect(QRectF(0, self.height() - 1, self.width(), 1), t.hairline)
        painter.end()

    def tip(self, at: QPointF) -> str:
        x, columns = at.x() - theme.px(8), place_columns(self.width() - 2 * theme.px(8))
        return next((TIPS[key] for key, (left, wide) in columns.items() if left <= x <= left + wide), "")


class FitRow(Painted):
    """Can have the focus: Enter loads, Up and Down go to the other rows."""

    load_asked = Signal(str)
    make_asked = Signal()  # the checkpoint that this row would be of
    moved = Signal(int)  # -1 up, 1 down

    def __init__(self, quantization: str) -> None:
        super().__init__()
        self.quantization = quantization
        self.setObjectName(f"fit_{quantization}")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.fit: Fit | None = None
        self.room = DeviceMemory("cpu", 0, 0)
        self.length = 1024
        self.recommended = self.loaded = self.last = False
        self.button = QPushButton("Load", self)
        self.button.setObjectName(f"fit_load_{quantization}")
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.button.clicked.connect(self.load)
        self.restyle()

    def restyle(self) -> None:
        """Takes up the theme's fonts at the current zoom."""
        self.strong, self.plain, self.small = map(FontFace, (theme.ui(13, 600), theme.ui(13), theme.ui(11.5)))
        self.updateGeometry()
        self._place()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(HEIGHT))

    def show_fit(
        self, fit: Fit, room: DeviceMemory, length: int, *, recommended: bool, loaded: bool, last: bool, why_not: str,
        offered: bool,
    ) -> None:  # fmt: skip
        """`last`: it was loaded this way before. `why_not`: nothing can be loaded now, whatever fits; not even
        `offered` where that will not change by itself."""
        self.fit, self.room, self.length = fit, room, length
        self.recommended, self.loaded, self.last = recommended, loaded, last
        able = not fit.available and fit.fits
        self.button.setText("Loaded" if loaded else "Make …" if self.makes else "Load")
        self.button.setEnabled(offered and not why_not and (self.makes or (able and not loaded)))
        self.button.setVisible(offered)
        self.button.setToolTip(why_not or (MAKE if self.makes else reason(fit, room)))
        role = "primary" if recommended and not loaded else ""
        if self.button.property("role") != role:
            set_role(self.button, role)
        title = SCHEMES[fit.quantization].title
        names = f"{title} is loaded" if loaded else MAKE if self.makes else f"Load with quantization {title}"
        self.button.setAccessibleName(names)
        words = row_words(fit, room, length)
        self.setAccessibleName(words + ("; recommended" if recommended else "") + ("; loaded" if loaded else ""))
        self.update()

    @property
    def makes(self) -> bool:
        """Whether what it takes is a checkpoint that is not made yet."""
        return self.fit is not None and MADE_BY in self.fit.available

    def load(self) -> None:
        if self.button.isEnabled() and self.makes:
            self.make_asked.emit()
        elif self.button.isEnabled():
            self.load_asked.emit(self.quantization)

    def second_line(self) -> list[tuple[str, QColor]]:
        """What is said below the figures, part by part in its colour."""
        t, fit = theme.current(), self.fit
        if fit is None:
            return []
        if self.makes:
            return [("no AWQ checkpoint yet: it can be made of this model", t.secondary)]
        if fit.available:
            return [(fit.available, t.secondary)]
        why = reason(fit, self.room)
        if why:
            return [(why, t.warn)]
        parts = []
        if self.recommended:
            parts.append(("recommended", t.accent))
        if self.last:
            parts.append(("used last", t.text))
        return [*parts, (fit.note or SCHEMES[fit.quantization].sentence, t.secondary)]

    # -- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        fit, t, px = self.fit, theme.current(), theme.px
        if fit is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.hasFocus() or self.underMouse():
            shape = QPainterPath()
            shape.addRoundedRect(QRectF(self.rect()).adjusted(0.5, 1.5, -0.5, -1.5), px(6), px(6))
            painter.fillPath(shape, theme.over(t.hairline, t.panel))
            if self.hasFocus():
                painter.setPen(QPen(t.accent, 1))
                painter.drawPath(shape)
        gap = px(3)
        top = (self.height() - self.plain.height - gap - self.small.height) / 2
        first = top + self.plain.ascent
        second = top + self.plain.height + gap + self.small.ascent
        quiet = bool(fit.available)
        places = place_columns(self.width() - 2 * px(8))
        for key, (x, wide) in places.items():
            box = QRectF(px(8) + x, top, wide, self.plain.height)
            match key:
                case "name":
                    size = px(8)
                    middle = first - self.plain.metrics.capHeight() / 2
                    if fit.quantization != "none":  # its cross would read as a refusal here
                        painter.setOpacity(0.5 if quiet else 1.0)
                        draw_scheme(painter, fit.quantization, box.left() + size / 2 + 1, middle, size)
                        painter.setOpacity(1.0)
                    left = box.left() + size + px(8)
                    self._say(painter, self.strong, t.secondary if quiet else t.text, left, first,
                              self.strong.cut(SCHEMES[fit.quantization].title, box.right() - left))  # fmt: skip
                case "bar":
                    if not quiet:
                        self._bar(painter, QRectF(box.left(), box.center().y() - px(3), wide, px(7)))
                case "holds":
                    if not quiet:
                        mark, color = ("✓", t.good) if fit.fits else ("✕", t.warn)
                        words = holds_words(fit, self.length) if fit.fits else "does not fit"
                        left = box.right() - self.plain.width(words)
                        self._say(painter, self.plain, t.text if fit.fits else t.warn, left, first, words)
                        self._say(painter, self.strong, color, left - px(5) - self.strong.width(mark), first, mark)
                case "dtype":
                    self._say(painter, self.plain, t.secondary, box.left(), first, "" if quiet else fit.dtype)
                case _:
                    count = {"weights": fit.weights, "kv": fit.kv_token, "activations": fit.activations,
                             "pool": fit.pool}[key]  # fmt: skip
                    words = "" if quiet else bytes_words(count)
                    left = box.right() - self.plain.width(words)
                    color = t.text if key == "weights" else t.secondary
                    self._say(painter, self.plain, color, left, first, words)
        self._second(painter, second)
        painter.end()

    def _say(self, painter: QPainter, face: FontFace, color: QColor, x: float, baseline: float, words: str) -> None:
        if words:
            painter.setFont(face.font)
            painter.setPen(color)
            face.draw(painter, x, baseline, words)

    def _second(self, painter: QPainter, baseline: float) -> None:
        px = theme.px
        x = float(px(8) + px(8) + px(8))
        right = self.width() - px(8) - px(BUTTON) - px(GAP)
        for i, (words, color) in enumerate(self.second_line()):
            if i:
                self._say(painter, self.small, theme.current().faint, x + px(5), baseline, "·")
                x += px(10) + self.small.width("·")
            if right - x > px(24):
                cut = self.small.cut(words, right - x)
                self._say(painter, self.small, color, x, baseline, cut)
                x += self.small.width(cut)

    def _bar(self, painter: QPainter, area: QRectF) -> None:
        """The device's memory; what does not fit is told by a full bar with a ragged end."""
        fit, room, t = self.fit, self.room, theme.current()
        if fit is None or not room.total:
            return
        shape = QPainterPath()
        shape.addRoundedRect(area, 2, 2)
        painter.save()
        painter.setClipPath(shape)
        painter.fillRect(area, theme.over(t.edge, t.panel))
        x = area.left()
        others = theme.faded(t.secondary, 0.5)
        parts = ((room.total - room.free, theme.over(others, t.panel), None), (fit.weights, t.accent, None),
                 (fit.activations, t.text, Qt.BrushStyle.Dense4Pattern),
                 (fit.pool, t.good, Qt.BrushStyle.BDiagPattern))  # fmt: skip
        for count, color, pattern in parts:
            wide = area.width() * count / room.total
            wide = max(wide, 1.5) if count else 0.0
            part = QRectF(x, area.top(), min(wide, area.right() - x), area.height())
            painter.fillRect(part, color)
            if pattern is not None:
                painter.fillRect(part, QBrush(t.panel, pattern))
            x += wide
        painter.restore()
        if not fit.fits:
            painter.setPen(QPen(t.warn, max(1.5, 1.5 * theme.zoom())))
            end = area.right() - 0.5
            painter.drawLine(QPointF(end, area.top() - theme.px(3)), QPointF(end, area.bottom() + theme.px(3)))

    def bar_words(self) -> str:
        fit, room = self.fit, self.room
        if fit is None:
            return ""
        left = max(0, room.free - fit.weights - fit.activations - fit.pool)
        return (
            f"in use by others {bytes_words(room.total - room.free)}, weights {bytes_words(fit.weights)}, activations "
            f"{bytes_words(fit.activations)}, KV pool {bytes_words(fit.pool)}, free {bytes_words(left)}, of "
            f"{bytes_words(room.total)}"
        )

    # -- keys and pointer -----------------------------------------------------------------------------------------

    def _place(self) -> None:
        px = theme.px
        high = px(30)
        self.button.setGeometry(self.width() - px(8) - px(BUTTON), (self.height() - high) // 2, px(BUTTON), high)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Return | Qt.Key.Key_Enter | Qt.Key.Key_Space:
                self.load()
            case Qt.Key.Key_Up:
                self.moved.emit(-1)
            case Qt.Key.Key_Down:
                self.moved.emit(1)
            case _:
                super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.update()
        return super().event(event)

    def tip(self, at: QPointF) -> str:
        fit, places = self.fit, place_columns(self.width() - 2 * theme.px(8))
        if fit is None:
            return ""
        x = at.x() - theme.px(8)
        over_bar = "bar" in places and places["bar"][0] <= x <= sum(places["bar"])
        words = row_words(fit, self.room, self.length)
        return self.bar_words() if over_bar and not fit.available else f"{SCHEMES[fit.quantization].sentence}\n{words}"
