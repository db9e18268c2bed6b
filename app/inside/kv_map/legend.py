"""What the looks of the KV map mean: one line, in its longest words that have room."""

from itertools import product

from PySide6.QtCore import QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QPainter, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.inside.kv_map.contiguous import hatch, paint_part
from app.language import tr
from app.plot.inked import inked, mixed
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

BLOCKS = (  # each in words that say all, and in short
    ("owned", tr("filled from the bottom"), tr("filled")),
    ("shared", tr("shared"), tr("shared")),
    ("cached", tr("cached"), tr("cached")),
    ("free", tr("free"), tr("free")),
)
STRIPS = (
    ("used", tr("used"), tr("used")),
    ("reserved", tr("reserved"), tr("reserved")),
    ("never", tr("padding and never used"), tr("never used")),
)
GAPS = (14, 8)  # pixels of the design between signs
BLOCKS_TIP = tr(
    "A block holds so many tokens' K and V. Its colour is its owner's, and its solid part is what is filled.\n"
    "A cut corner: several owners share it. Hatched: nobody's, kept for its prefix until room is needed.\n"
    "For a moment: a ring for a prefix hit or a shared prompt, a diamond for copy-on-write, a cross for a cached block "
    "that was taken, an arrow for a prefix that came back from host memory.\n"
    "Selected: its blocks' numbers are their places in the block table."
)
STRIPS_TIP = tr(
    "A strip is reserved whole, for the longest that may come.\nUsed: K and V are there. Reserved: still reachable "
    "under max_tokens. Crossed: padding, and what no token of this request can ever fill."
)


class KvLegend(Painted):
    """Swatches with words."""

    face = Face(11)

    def __init__(self) -> None:
        super().__init__("kv_legend")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._strips = False

    def show_strips(self, strips: bool) -> None:
        """The looks of strips, or of blocks."""
        self._strips = strips
        signs = ", ".join(words for _, words, _ in (STRIPS if strips else BLOCKS))
        self.setAccessibleName(tr("Legend: {signs}", signs=signs))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), round(self.face.height) + theme.px(2))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def signs(self) -> list[tuple[str, str, float]]:
        """The looks that have room, their words, and where each begins."""
        of, space = STRIPS if self._strips else BLOCKS, theme.px(10) + theme.px(5)
        placed: list[tuple[str, str, float]] = []
        for words, gap in product((1, 2), GAPS):
            placed, x = [], 0.0
            for sign in of:
                right = x + space + self.face.width(sign[words])
                if right > self.width():
                    break
                placed.append((sign[0], sign[words], x))
                x = right + theme.px(gap)
            if len(placed) == len(of):
                break
        return placed

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        face, t, side, middle = self.face, theme.current(), theme.px(10), self.height() / 2
        for look, words, x in self.signs():
            self._swatch(painter, look, QRectF(x, round(middle - side / 2), side, side))
            face.say(painter, x + side + theme.px(5), middle + face.cap / 2, words, t.secondary)

    def _swatch(self, painter: QPainter, look: str, box: QRectF) -> None:
        t = theme.current()
        own, faint = t.accent, theme.over(t.hairline, t.panel)
        match look:
            case "owned":
                painter.fillRect(box, mixed(own, 0.24))
                painter.fillRect(box.adjusted(0, box.height() * 0.4, 0, 0), own)
            case "shared":
                painter.fillRect(box, own)
                cut = box.width() * 0.4
                corner = box.topRight()
                with inked(painter, t.panel):
                    painter.drawPolygon(QPolygonF([corner - QPointF(cut, 0), corner, corner + QPointF(0, cut)]))
            case "cached":
                painter.fillRect(box, faint)
                hatch(painter, box, mixed(t.secondary, 0.6), step=4)
            case "free":
                painter.fillRect(box, faint)
            case _:
                paint_part(painter, box, look, own, step=5 if look == "never" else 4)

    def tip(self, at: QPointF) -> str:
        return STRIPS_TIP if self._strips else BLOCKS_TIP
