"""The blocks of preempted requests that lie in host memory, a square each, below the pool's."""

from PySide6.QtCore import QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.state import KvState
from app.inside.kv_map.tables import SAMPLES
from app.language import digits, tr, trn
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

SIDE, GAP, AFTER = 8, 2, 5  # pixels of the design: a square, between two of one sample, and between samples
TITLE, NONE = tr("on the host"), tr("on the host: none")


class HostStrip(Painted):
    """One line; what has no room in it is counted at its end."""

    face = Face(11)

    def __init__(self) -> None:
        super().__init__("kv_host")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._samples: list[tuple[int, int]] = []  # request, and how many blocks one sample of it has
        self._places: list[tuple[float, float, int]] = []  # from and to which x which of them is drawn

    def show_state(self, state: KvState) -> None:
        samples = [(key // SAMPLES, blocks) for key, blocks in sorted(state.swapped.items())]
        if samples != self._samples:
            self._samples = samples
            self.setAccessibleName(tr("Blocks in host memory: {blocks}", blocks=self.words()))
            self.update()

    def words(self) -> str:
        """ "#4: 5 blocks, #5: 4 blocks", or that there are none."""
        told = (
            trn("#{request}: {count:,} block", "#{request}: {count:,} blocks", blocks, request=request)
            for request, blocks in self._samples
        )
        return ", ".join(told) or tr("none")

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), round(self.face.height) + theme.px(2))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        face, t, middle = self.face, theme.current(), self.height() / 2
        side, step = theme.px(SIDE), theme.px(SIDE + GAP)
        face.say(painter, 0, middle + face.cap / 2, TITLE if self._samples else NONE, t.secondary)
        x, room = face.width(TITLE) + theme.px(8), self.width() - face.width("+ 9,999") - theme.px(4)
        left, self._places = sum(blocks for _, blocks in self._samples), []
        for i, (request, blocks) in enumerate(self._samples):
            shown = min(blocks, max(0, int((room - x) / step)))
            for n in range(shown):
                painter.fillRect(
                    QRectF(x + n * step, round(middle - side / 2), side, side), theme.request_color(request)
                )
            self._places.append((x, x + shown * step, i))
            x, left = x + shown * step + theme.px(AFTER - GAP), left - shown
            if shown < blocks:
                break
        if left:
            face.say(painter, x, middle + face.cap / 2, digits(f"+ {left:,}"), t.secondary)

    def tip(self, at: QPointF) -> str:
        """Whose the square is, else all of them."""
        for begin, end, i in self._places:
            if begin <= at.x() < end:
                request, blocks = self._samples[i]
                return trn(
                    "request {request:,}: {count:,} block in host memory until it goes on",
                    "request {request:,}: {count:,} blocks in host memory until it goes on",
                    blocks,
                    request=request,
                )
        return tr("Blocks of preempted requests in host memory: {blocks}", blocks=self.words())
