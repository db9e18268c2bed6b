"""What a replica computes, drawn: its KV blocks as a bar, and a bar for each request, which grows with its tokens."""

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QBrush, QPainter, QPen

from app.fleet.state import ReplicaState, Running
from app.language import tr, trn
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

LINE, GAP, KV, NUMBER, MARK = 16, 4, 12, 44, 52  # pixels of the design


class ReplicaPicture(Painted):
    """A request that went on from a replica that died has a hatched beginning, as prompts have that are computed again,
    and an arrow."""

    face, small = Face(11.5, mono=True), Face(11)
    least = (150, 120)

    def __init__(self, place: int) -> None:
        super().__init__(f"fleet_picture_{place}", tr("What replica {place} computes", place=place))
        self.state = ReplicaState(place, False)
        self._begun: dict[int, int] = {}  # tokens that a request had when it came here

    def show_state(self, state: ReplicaState) -> None:
        here = {one.request for one in state.requests}
        self._begun = {request: at for request, at in self._begun.items() if request in here}
        for one in state.requests:
            self._begun.setdefault(one.request, one.tokens if one.moves else 0)
        self.state = state
        self.update()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        if not self.state.alive:
            self.say_empty(painter, tr("Gone. Another is being loaded in its place."))
            return
        top = self._paint_kv(painter)
        if not self.state.requests:
            return
        line = theme.px(LINE + GAP)
        room = max(1, int((self.height() - top) // line))
        shown = self.state.requests if len(self.state.requests) <= room else self.state.requests[: room - 1]
        for i, one in enumerate(shown):
            self._paint_request(painter, one, top + i * line)
        if (more := len(self.state.requests) - len(shown)) > 0:
            painter.setFont(self.small.font)
            painter.setPen(theme.current().secondary)
            words = trn("and {count} more", "and {count} more", more)
            painter.drawText(QPointF(0, top + len(shown) * line + theme.px(LINE - 4)), words)

    def _paint_kv(self, painter: QPainter) -> float:
        colors, state, height = theme.current(), self.state, theme.px(KV)
        width, total = float(self.width()), max(1, state.blocks)
        held = state.blocks - state.free_blocks - state.cached_blocks
        owned, kept = width * held / total, width * state.cached_blocks / total
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.hover)
        painter.drawRect(QRectF(0, 0, width, height))
        painter.setBrush(colors.accent)
        painter.drawRect(QRectF(0, 0, owned, height))
        painter.setBrush(QBrush(colors.secondary, Qt.BrushStyle.BDiagPattern))
        painter.drawRect(QRectF(owned, 0, kept, height))
        return height + theme.px(12)

    def _paint_request(self, painter: QPainter, one: Running, top: float) -> None:
        colors, height = theme.current(), theme.px(LINE)
        color = theme.request_color(one.request)
        painter.setFont(self.face.font)
        painter.setPen(color)
        number = QRectF(0, top, theme.px(NUMBER - 6), height)
        painter.drawText(number, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, f"#{one.request}")
        left, width = theme.px(NUMBER), self.width() - theme.px(NUMBER + MARK)
        bar = QRectF(left, top + theme.px(3), max(1.0, width), height - theme.px(6))
        share = min(1.0, one.tokens / max(1, one.limit))
        before = min(share, self._begun.get(one.request, 0) / max(1, one.limit))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.hover)
        painter.drawRect(bar)
        painter.setBrush(color)
        painter.drawRect(
            QRectF(bar.left() + before * bar.width(), bar.top(), (share - before) * bar.width(), bar.height())
        )
        if before:
            again = QRectF(bar.left(), bar.top(), before * bar.width(), bar.height())
            painter.setBrush(QBrush(color, Qt.BrushStyle.BDiagPattern))
            painter.setPen(QPen(color, 1))
            painter.drawRect(again)
        painter.setPen(colors.warn if one.moves else colors.secondary)
        told = f"↷ {one.tokens}" if one.moves else f"{one.tokens}"
        box = QRectF(bar.right() + theme.px(6), top, theme.px(MARK - 6), height)
        painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, told)

    def tip(self, at: QPointF) -> str:
        state = self.state
        if not state.alive:
            return ""
        if at.y() < theme.px(KV + 6):
            held = state.blocks - state.free_blocks - state.cached_blocks
            return tr(
                "{held:,} of {blocks:,} KV blocks have an owner, {cached:,} are kept for their prefix",
                held=held,
                blocks=state.blocks,
                cached=state.cached_blocks,
            )
        place = int((at.y() - theme.px(KV + 12)) // theme.px(LINE + GAP))
        if not 0 <= place < len(state.requests):
            return ""
        one = state.requests[place]
        told = {"request": one.request, "tokens": one.tokens, "limit": one.limit}
        if one.moves:
            return tr(
                "Request {request}: {tokens:,} of at most {limit:,} tokens; it went on here from a replica that died",
                **told,
            )
        return tr("Request {request}: {tokens:,} of at most {limit:,} tokens", **told)
