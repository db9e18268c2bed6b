"""The map of a contiguous cache: a strip a running request, and how much of it is of use. The first half has no Qt."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.state import KvState
from app.inside.kv_map.tables import SAMPLES
from app.language import tr
from app.plot.inked import mixed
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

TALLEST, STAGE_TALLEST, WRITTEN = 44, 66, 15  # pixels of a strip; from which on it has words


@dataclass(frozen=True, slots=True)
class Strip:
    """Tokens of a strip: `used`; `reserved`, still reachable; and `never`, padding and what no token will fill. All of
    an `over` one is the last, though `computed` tokens lie in it."""

    request: int
    slot: int
    blocks: int
    tokens: int
    used: int
    reserved: int
    computed: int
    over: bool

    @property
    def never(self) -> int:
        return self.tokens - self.used - self.reserved

    @property
    def words(self) -> str:
        if self.over:
            return tr("finished, held for its batch: {tokens:,} tokens never used again", tokens=self.tokens)
        return tr(
            "used {used:,} · reserved {reserved:,} · never used {never:,}",
            used=self.used,
            reserved=self.reserved,
            never=self.never,
        )

    @property
    def short(self) -> str:
        return tr("held for its batch") if self.over else f"{self.used:,} + {self.reserved:,} + {self.never:,}"


def strips_of(state: KvState) -> list[Strip]:
    """All strips, by slot; those that have no row yet come last."""
    tables, result = state.tables, []
    for handle in tables.live.tolist():
        table, over = tables.table(handle), bool(tables.over[handle])
        request, computed = int(tables.key[handle]) // SAMPLES, int(tables.computed[handle])
        tokens, reach = len(table) * state.size, int(state.requests.reach[request])
        used = 0 if over else min(computed, tokens)
        reserved = 0 if over else max(0, min(tokens, reach) - used)
        slot = int(tables.slot[handle])
        result.append(Strip(request, slot, len(table), tokens, used, reserved, computed, over))
    return sorted(result, key=lambda strip: (strip.slot < 0, strip.slot))


class KvStrips(Painted):
    """Draws the strips it was shown last."""

    strip_chosen = Signal(int)  # request; -1 beside all
    hint, least = (320, 240), (160, 80)
    focus_ring = 0
    face = Face(11)

    def __init__(self) -> None:
        super().__init__("kv_strips", tr("KV strips"), focus=True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.strips: list[Strip] = []
        self._selected = -1

    def show_state(self, state: KvState | None, selected: int) -> None:
        self.strips = strips_of(state) if state is not None else []
        self._selected = selected
        said = "; ".join(
            tr("slot {slot}, #{request}: {words}", slot=s.slot + 1, request=s.request, words=s.words)
            for s in self.strips[:16]
        )
        self.setAccessibleDescription(said or tr("No strip is held."))
        self.update()

    @property
    def pitch(self) -> float:
        """Pixels from a strip to the next."""
        tallest = STAGE_TALLEST if theme.presenting() else TALLEST
        return min(theme.px(tallest), self.height() / max(1, len(self.strips)))

    def _head(self) -> float:
        """Pixels before the strips, for their names; none where there is no room for words."""
        if self.pitch < theme.px(WRITTEN):
            return 0.0
        return max((self.face.width(f"#{s.request}") for s in self.strips), default=0.0) + theme.px(8)

    def box(self, index: int) -> QRectF:
        """A strip's bar, in the widget."""
        pitch, head = self.pitch, self._head()
        widest = max(strip.tokens for strip in self.strips)
        room = self.width() - head
        side = max((self.face.width(s.words) for s in self.strips if not s.over), default=0.0) + theme.px(12)
        if pitch >= theme.px(WRITTEN) and room - side >= theme.px(240):
            room -= side
        gap = 0 if pitch < 4 else 1 if pitch < 8 else theme.px(4)
        return QRectF(head, index * pitch, room * self.strips[index].tokens / widest, max(1.0, pitch - gap))

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, face, head = theme.current(), self.face, self._head()
        chosen = any(strip.request == self._selected for strip in self.strips)
        for i, strip in enumerate(self.strips):
            box, mine = self.box(i), strip.request == self._selected
            painter.setOpacity(1.0 if mine or not chosen else 0.55)
            x, scale, own = box.left(), box.width() / strip.tokens, theme.request_color(strip.request)
            for look, tokens in (("used", strip.used), ("reserved", strip.reserved), ("never", strip.never)):
                paint_part(painter, QRectF(x, box.top(), tokens * scale, box.height()), look, own)
                x += tokens * scale
            if not head:
                continue
            baseline, ink = box.center().y() + face.cap / 2, t.text if mine else t.secondary
            face.say(painter, 0, baseline, f"#{strip.request}", ink)
            left = box.right() + theme.px(12)
            words = next((w for w in (strip.words, strip.short) if left + face.width(w) <= self.width()), "")
            face.say(painter, left, baseline, words, ink)
        painter.setOpacity(1.0)

    def index_at(self, y: float) -> int:
        """The strip at a height; -1 below all."""
        index = int(y // self.pitch) if self.strips and self.height() > 0 else -1
        return index if 0 <= index < len(self.strips) else -1

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            index = self.index_at(event.position().y())
            self.strip_chosen.emit(self.strips[index].request if index >= 0 else -1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is None or not self.strips:
            super().keyPressEvent(event)
            return
        now = next((i for i, strip in enumerate(self.strips) if strip.request == self._selected), -1)
        target = min(max(now + step, 0), len(self.strips) - 1)
        self.strip_chosen.emit(self.strips[target].request)

    def tip(self, at: QPointF) -> str:
        index = self.index_at(at.y())
        return strip_words(self.strips[index]) if index >= 0 else ""


def strip_words(strip: Strip) -> str:
    """All that is known of a strip."""
    where = tr("slot {slot}", slot=strip.slot + 1) if strip.slot >= 0 else tr("no row yet")
    words = tr("{blocks:,} blocks in one strip of {tokens:,} tokens", blocks=strip.blocks, tokens=strip.tokens)
    return f"#{strip.request}, {where}: {words} · {strip.words}"


def paint_part(painter: QPainter, box: QRectF, look: str, own: QColor, step: float = 7) -> None:
    """A part of a strip: used is solid, reserved hatched, what is never used grey and crossed; lines `step` apart."""
    grey = theme.current().secondary
    if box.width() <= 0:
        return
    match look:
        case "used":
            painter.fillRect(box, own)
        case "reserved":
            painter.fillRect(box, mixed(own, 0.2))
            hatch(painter, box, mixed(own, 0.8), step=step)
        case _:
            painter.fillRect(box, mixed(grey, 0.12))
            hatch(painter, box, mixed(grey, 0.42), crossed=True, step=step)


def hatch(painter: QPainter, box: QRectF, color: QColor, crossed: bool = False, step: float = 7) -> None:
    """Diagonal lines over a box, `step` apart before zoom; crossed ones fall as well as rise."""
    step, height = theme.px(step), box.height()
    if height < 3 or box.width() < 1:
        return
    painter.save()
    painter.setClipRect(box)
    painter.setPen(QPen(color, max(1.0, theme.zoom())))
    x = box.left() - height
    while x < box.right():
        painter.drawLine(QPointF(x, box.bottom()), QPointF(x + height, box.top()))
        if crossed:
            painter.drawLine(QPointF(x, box.top()), QPointF(x + height, box.bottom()))
        x += step
    painter.restore()
