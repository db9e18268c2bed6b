"""One row of the fit table: a quantization's bill on one line, what it is or why not on the next, and its button."""

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QKeyEvent, QPainter, QPainterPath, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy

from app.language import tr
from app.models.fit.breakdown import holds_words, reason, row_words
from app.plot.marks import draw_scheme
from app.quality.words import scheme_words
from app.ui.controls import button
from app.ui.labels import set_role
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from app.words import bytes_words
from engine.config import SCHEMES
from engine.memory import DeviceMemory, Fit

HEIGHT, HEAD, BUTTON, GAP, PAD = 48, 26, 86, 10, 8  # pixels of the design
MADE_BY = "batchscope quantize"  # named where a checkpoint is missing that this command makes
MAKE = tr("Make an AWQ checkpoint of this model")


@dataclass(frozen=True, slots=True)
class Column:
    """`least` pixels of the design, more where its title is wider; `order` in which they give way where there is no
    room, 0 never. `words` where it says no more than them."""

    key: str
    title: str
    least: int
    tip: str
    words: Callable[[Fit], str] | None = None
    right: bool = True
    order: int = 0


HOLDS = tr("Requests of this length that the pool holds at once")
DTYPE = tr("The precision of all that is not quantized, of the arithmetic and of the KV cache")
KV = tr("2 × layers × key and value heads × head dim × bytes")
ACTIVATIONS = tr("What a step at the token budget takes besides")
POOL = tr("What the engine gives its KV cache")
BAR = tr("The device's memory: in use by others, weights, activations, KV pool, free")
COLUMNS = (
    Column("name", tr("Quantization"), 132, tr("How the weights are held"), right=False),
    Column("dtype", tr("Precision"), 66, DTYPE, lambda fit: fit.dtype, right=False, order=3),
    Column(
        "weights",
        tr("Weights"),
        62,
        tr("Bytes of all weights in memory"),
        lambda fit: bytes_words(fit.weights),
        order=6,
    ),
    Column("kv", tr("KV a token"), 70, KV, lambda fit: bytes_words(fit.kv_token), order=2),
    Column("activations", tr("Activations"), 70, ACTIVATIONS, lambda fit: bytes_words(fit.activations), order=1),
    Column("pool", tr("KV pool"), 62, POOL, lambda fit: bytes_words(fit.pool), order=5),
    Column("holds", tr("Requests × tokens"), 116, HOLDS),
    Column("bar", tr("Memory"), 96, BAR, right=False, order=4),
)


def place_columns(width: float) -> dict[str, tuple[float, float]]:
    """Left and width of each column that there is room for, button excluded; names and bars take what is left."""
    px = theme.px
    shown = list(COLUMNS)
    room = width - px(BUTTON) - px(GAP)
    least = {column.key: max(px(column.least), FitHead.face.width(column.title)) for column in COLUMNS}

    def needed() -> float:
        return sum(least[column.key] for column in shown) + px(GAP) * (len(shown) - 1)

    for order in range(1, 7):
        if needed() > room:
            shown = [column for column in shown if column.order != order]
    spare = max(0.0, room - needed())
    bar = any(column.key == "bar" for column in shown)
    extra = {"name": spare * (0.3 if bar else 0.6), "bar": spare * 0.5 if bar else 0.0}
    each = (spare - sum(extra.values())) / max(1, len(shown) - (2 if bar else 1))
    places, x = {}, 0.0
    for column in shown:
        wide = least[column.key] + extra.get(column.key, each)
        places[column.key] = (x, wide)
        x += wide + px(GAP)
    return places


class _Columned(Painted):
    """As wide as there is room for, with something in the columns."""

    def __init__(self, name: str, *, focus: bool = False) -> None:
        super().__init__(name, focus=focus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def places(self) -> list[tuple[Column, float, float]]:
        """The columns that there is room for, each with its left and its width."""
        pad = theme.px(PAD)
        found = place_columns(self.width() - 2 * pad)
        return [(c, pad + found[c.key][0], found[c.key][1]) for c in COLUMNS if c.key in found]

    def column_at(self, x: float) -> Column | None:
        return next((column for column, left, wide in self.places() if left <= x <= left + wide), None)


class FitHead(_Columned):
    """The columns' titles."""

    hint = 200, HEAD
    face = Face(11, 600)

    def __init__(self) -> None:
        super().__init__("fit_head")

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, baseline = theme.current(), self.height() - theme.px(9)
        for column, left, wide in self.places():
            words = self.face.cut(column.title, wide)
            x = left + wide if column.right else left
            self.face.say(painter, x, baseline, words, t.secondary, before=column.right)
        painter.fillRect(QRectF(0, self.height() - 1, self.width(), 1), t.hairline)

    def tip(self, at: QPointF) -> str:
        column = self.column_at(at.x())
        return column.tip if column is not None else ""


class FitRow(_Columned):
    """Can have the focus: Enter loads, Up and Down go to the other rows."""

    load_asked = Signal(str)
    make_asked = Signal()  # the checkpoint that this row would be of
    moved = Signal(int)  # -1 up, 1 down
    hint = 200, HEIGHT
    strong, plain, small = Face(13, 600), Face(13), Face(11.5)

    def __init__(self, quantization: str) -> None:
        super().__init__(f"fit_{quantization}", focus=True)
        self.setAccessibleName(SCHEMES[quantization].title)
        self.quantization = quantization
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.fit: Fit | None = None
        self.room = DeviceMemory("cpu", 0, 0)
        self.length = 1024
        self.recommended = self.loaded = self.last = False
        self.button = button(f"fit_load_{quantization}", tr("Load"), self.load)
        self.button.setParent(self)
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        theme.changes.theme_changed.connect(self._place)
        self._place()

    def show_fit(self, fit: Fit, room: DeviceMemory, length: int, why_not: str, *, offered: bool) -> None:
        """`why_not`: nothing can be loaded now, whatever fits; not even `offered` where that will not change by
        itself."""
        self.fit, self.room, self.length = fit, room, length
        recommended, loaded, title = self.recommended, self.loaded, SCHEMES[fit.quantization].title
        says, said, why = tr("Load"), tr("Load with quantization {title}", title=title), reason(fit, room)
        able = not why and not loaded
        if self.makes:
            says, said, why, able = tr("Make …"), MAKE, MAKE, True
        if loaded:
            says, said = tr("Loaded"), tr("{model} is loaded", model=title)
        self.button.setText(says)
        self.button.setAccessibleName(said)
        self.button.setToolTip(why_not or why)
        self.button.setEnabled(offered and not why_not and able)
        self.button.setVisible(offered)
        set_role(self.button, "primary" if recommended and not loaded else "")
        words = row_words(fit, room, length), tr("recommended") if recommended else "", tr("loaded") if loaded else ""
        self.setAccessibleName("; ".join(filter(None, words)))
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
        if fit.available:
            words = tr("no AWQ checkpoint yet: it can be made of this model") if self.makes else fit.available
            return [(words, t.secondary)]
        why = reason(fit, self.room)
        if why:
            return [(why, t.warn)]
        parts = [(tr("recommended"), t.accent)] if self.recommended else []
        parts += [(tr("used last"), t.text)] if self.last else []
        return [*parts, (fit.note or scheme_words(fit.quantization), t.secondary)]

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        fit, gap = self.fit, theme.px(3)
        if fit is None:
            return
        self._ground(painter)
        top = (self.height() - self.plain.height - gap - self.small.height) / 2
        first = top + self.plain.ascent
        for column, left, wide in self.places():
            match column.key:
                case "name":
                    self._name(painter, fit, left, left + wide, first)
                case _ if fit.available:
                    pass
                case "holds":
                    self._holds(painter, fit, left + wide, first)
                case "bar":
                    middle = top + self.plain.height / 2
                    self._bar(painter, fit, QRectF(left, middle - theme.px(3), wide, theme.px(7)))
                case _ if column.words is not None:
                    color = theme.current().text if column.key == "weights" else theme.current().secondary
                    x = left + wide if column.right else left
                    self.plain.say(painter, x, first, column.words(fit), color, before=column.right)
        self._second(painter, top + self.plain.height + gap + self.small.ascent)

    def _ground(self, painter: QPainter) -> None:
        t = theme.current()
        if self.hasFocus() or self.underMouse():
            shape = QPainterPath()
            shape.addRoundedRect(QRectF(self.rect()).adjusted(0.5, 1.5, -0.5, -1.5), theme.px(6), theme.px(6))
            painter.fillPath(shape, theme.over(t.hairline, t.panel))
            if self.hasFocus():
                painter.setPen(QPen(t.accent, 1))
                painter.drawPath(shape)

    def _name(self, painter: QPainter, fit: Fit, left: float, right: float, baseline: float) -> None:
        t, size = theme.current(), theme.px(8)
        if fit.quantization != "none":  # its cross would read as a refusal here
            painter.setOpacity(0.5 if fit.available else 1.0)
            draw_scheme(painter, fit.quantization, left + size / 2 + 1, baseline - self.plain.cap / 2, size)
            painter.setOpacity(1.0)
        left += size + theme.px(8)
        title = self.strong.cut(SCHEMES[fit.quantization].title, right - left)
        self.strong.say(painter, left, baseline, title, t.secondary if fit.available else t.text)

    def _holds(self, painter: QPainter, fit: Fit, right: float, baseline: float) -> None:
        t = theme.current()
        words, mark = (holds_words(fit, self.length), "✓") if fit.fits else (tr("does not fit"), "✕")
        left = right - self.plain.width(words)
        self.plain.say(painter, left, baseline, words, t.text if fit.fits else t.warn)
        self.strong.say(painter, left - theme.px(5), baseline, mark, t.good if fit.fits else t.warn, before=1)

    def _second(self, painter: QPainter, baseline: float) -> None:
        px = theme.px
        x, right = 3.0 * px(PAD), self.width() - px(PAD) - px(BUTTON) - px(GAP)
        for i, (words, color) in enumerate(self.second_line()):
            if i:
                self.small.say(painter, x + px(5), baseline, "·", theme.current().faint)
                x += px(10) + self.small.width("·")
            if right - x > px(24):
                cut = self.small.cut(words, right - x)
                self.small.say(painter, x, baseline, cut, color)
                x += self.small.width(cut)

    def _bar(self, painter: QPainter, fit: Fit, area: QRectF) -> None:
        """The device's memory; what does not fit is told by a full bar with a ragged end."""
        room, t = self.room, theme.current()
        if not room.total:
            return
        shape = QPainterPath()
        shape.addRoundedRect(area, 2, 2)
        painter.save()
        painter.setClipPath(shape)
        painter.fillRect(area, theme.over(t.edge, t.panel))
        x, others = area.left(), theme.over(theme.faded(t.secondary, 0.5), t.panel)
        for count, color, pattern in (
            (room.total - room.free, others, Qt.BrushStyle.NoBrush),
            (fit.weights, t.accent, Qt.BrushStyle.NoBrush),
            (fit.activations, t.text, Qt.BrushStyle.Dense4Pattern),
            (fit.pool, t.good, Qt.BrushStyle.BDiagPattern),
            (fit.all_states, t.good, Qt.BrushStyle.VerPattern),
        ):
            wide = max(1.5, area.width() * count / room.total) if count else 0.0
            part = QRectF(x, area.top(), min(wide, area.right() - x), area.height())
            painter.fillRect(part, color)
            painter.fillRect(part, QBrush(t.panel, pattern))
            x += wide
        painter.restore()
        if not fit.fits:
            painter.setPen(QPen(t.warn, max(1.5, 1.5 * theme.zoom())))
            end = area.right() - 0.5
            painter.drawLine(QPointF(end, area.top() - theme.px(3)), QPointF(end, area.bottom() + theme.px(3)))

    def _bar_words(self, fit: Fit) -> str:
        room = self.room
        free = max(0, room.free - fit.weights - fit.activations - fit.pool - fit.all_states)
        words = tr(
            "in use by others {others}, weights {weights}, activations {activations}, KV pool {pool}, free {free}, "
            "of {all}",
            others=bytes_words(room.total - room.free),
            weights=bytes_words(fit.weights),
            activations=bytes_words(fit.activations),
            pool=bytes_words(fit.pool),
            free=bytes_words(free),
            all=bytes_words(room.total),
        )
        kept = tr("{words}; states of requests {bytes}", words=words, bytes=bytes_words(fit.all_states))
        return kept if fit.all_states else words

    # -- keys and pointer -----------------------------------------------------------------------------------------

    def _place(self) -> None:
        wide, high = theme.px(BUTTON), theme.px(30)
        self.button.setGeometry(self.width() - theme.px(PAD) - wide, (self.height() - high) // 2, wide, high)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Return | Qt.Key.Key_Enter | Qt.Key.Key_Space:
                self.load()
            case Qt.Key.Key_Up | Qt.Key.Key_Down:
                self.moved.emit(1 if event.key() == Qt.Key.Key_Down else -1)
            case _:
                super().keyPressEvent(event)

    def tip(self, at: QPointF) -> str:
        fit, column = self.fit, self.column_at(at.x())
        if fit is None:
            return ""
        if column is not None and column.key == "bar" and not fit.available:
            return self._bar_words(fit)
        return f"{scheme_words(fit.quantization)}\n{row_words(fit, self.room, self.length)}"
