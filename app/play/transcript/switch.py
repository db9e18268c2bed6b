"""How an answer's tokens are shown, which of its samples is, and what the grounds mean: above a transcript."""

import math

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QSizePolicy, QWidget

from app import storage
from app.language import tr
from app.play.transcript.styles import TITLES, TOGETHER, Line, TokenMode, grounds, legend, underlines
from app.ui.controls import DropDown, button
from app.ui.layout.boxes import panel, row
from app.ui.layout.zoomed import zoomed
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted

KEY = "transcript/tokens"
TIPS = {
    TokenMode.TEXT: tr("The text alone"),
    TokenMode.PROBABILITY: tr(
        "Each token by its probability, as the model itself gave it, before temperature and filters"
    ),
    TokenMode.DRAFTS: tr("Which tokens had been drafted, and which are the model's own"),
    TokenMode.TIME: tr(
        "Each token by the time it took: TTFT for the first, ITL for the others, against the median ITL"
    ),
}
GAP, INSIDE = 4, 6
STYLES = {Line.DotLine: Qt.PenStyle.DotLine, Line.SingleUnderline: Qt.PenStyle.SolidLine}


class TokenLegend(Painted):
    """Samples of each class, with the class's words on its ground, in one line or as many as it needs."""

    face = Face(11.5)

    def __init__(self) -> None:
        super().__init__("token_legend")
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.mode = TokenMode.TEXT
        self.parts: list[tuple[int, str]] = []

    def say(self, mode: TokenMode, median: str = "", ttft: str = "", together: bool = False) -> None:
        """Another mode, or other times; it takes no room where there is nothing to tell."""
        parts = legend(mode, median, ttft, together)
        if (mode, parts) != (self.mode, self.parts):
            self.mode, self.parts = mode, parts
            self.setAccessibleName(", ".join(words for _, words in parts))
            self.setVisible(bool(parts))
            self.restyle()

    @property
    def _line(self) -> float:
        return math.ceil(self.face.height) + theme.px(3)

    def _boxes(self, width: float) -> list[QRectF]:
        px, high = theme.px, self._line
        boxes, x, y = [], 0.0, 0.0
        for _, words in self.parts:
            wide = self.face.width(words) + 2 * px(INSIDE)
            if x > 0 and x + wide > width:
                x, y = 0.0, y + high + px(GAP)
            boxes.append(QRectF(x, y, min(wide, width), high))
            x += wide + px(GAP)
        return boxes

    def heightForWidth(self, width: int) -> int:
        boxes = self._boxes(width)
        return math.ceil(boxes[-1].bottom()) if boxes else 0

    def sizeHint(self) -> QSize:
        wide = sum(self.face.width(words) + theme.px(2 * INSIDE + GAP) for _, words in self.parts)
        return QSize(math.ceil(wide), self.heightForWidth(math.ceil(wide)))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(120), math.ceil(self._line))

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, face = theme.current(), theme.px, self.face
        colors, lines = grounds(self.mode), underlines(self.mode)
        painter.translate(0, max(0, self.height() - self.heightForWidth(self.width())) // 2)
        for (kind, words), box in zip(self.parts, self._boxes(self.width())):
            painter.setPen(Qt.PenStyle.NoPen if kind in colors else QPen(t.hairline, 1))
            painter.setBrush(colors.get(kind, Qt.BrushStyle.NoBrush))
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), px(3), px(3))
            baseline = face.baseline(box.top(), box.height())
            text = face.cut(words, box.width() - 2 * px(INSIDE) + 1)
            face.say(painter, box.left() + px(INSIDE), baseline, text, t.text)
            if kind in lines or kind == TOGETHER:
                style, color = lines.get(kind, (Line.DashUnderline, t.faint))
                painter.setPen(QPen(color, max(1.0, theme.zoom()), STYLES.get(style, Qt.PenStyle.DashLine)))
                y = baseline + px(2)
                painter.drawLine(QPointF(box.left() + px(INSIDE), y), QPointF(box.right() - px(INSIDE), y))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.updateGeometry()


class TokenSwitch(QWidget):
    """`mode` is remembered between starts; `sample` counts from 0. The `legend` stands where the owner puts it."""

    mode_changed = Signal()
    sample_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("token_switch")
        self.modes = QButtonGroup(self)
        for i, mode in enumerate(TokenMode):
            name, tip, said = f"tokens_{mode.value.lower()}", TIPS[mode], tr("Tokens: {shown}", shown=TITLES[mode])
            each = button(name, TITLES[mode], role="quiet", tip=tip, said=said, checkable=True)
            each.setAccessibleDescription(tip)
            self.modes.addButton(each, i)
        frame = panel(row(*self.modes.buttons(), margins=(2, 0, 2, 0), spacing=0), "chip")
        kept = str(storage.settings().value(KEY, TokenMode.TEXT.value))
        self.mode = next((mode for mode in TokenMode if mode.value == kept), TokenMode.TEXT)
        self.modes.button(list(TokenMode).index(self.mode)).setChecked(True)
        self.offer_drafts(False)
        self.samples = DropDown("transcript_sample", said=tr("Sample on show"))
        self.samples.setSizeAdjustPolicy(DropDown.SizeAdjustPolicy.AdjustToContents)
        self.samples.hide()
        self.legend = TokenLegend()
        self.legend.hide()
        self.setLayout(zoomed(row(frame, self.samples, None), spacing=8))
        self.modes.idClicked.connect(self._on_mode)
        self.samples.activated.connect(lambda place: self.sample_changed.emit())

    @property
    def sample(self) -> int:
        return max(0, self.samples.currentIndex())

    def offer(self, samples: int, beams: bool = False) -> None:
        """Another request, with so many samples, or the best of its beams; the first is on show."""
        self.samples.clear()
        for i in range(1, samples + 1):
            words = tr("Best {i} of {all}", i=i, all=samples) if beams else tr("Sample {i} of {all}", i=i, all=samples)
            self.samples.addItem(words)
        self.samples.setVisible(samples > 1)

    def offer_drafts(self, drafts: bool) -> None:
        """Whether there are drafts to tell apart."""
        self.modes.button(list(TokenMode).index(TokenMode.DRAFTS)).setVisible(drafts or self.mode is TokenMode.DRAFTS)

    def say(self, median: str = "", ttft: str = "", together: bool = False) -> None:
        """The legend of the mode, with the median ITL and the TTFT in words, and whether any tokens came together."""
        self.legend.say(self.mode, median, ttft, together)

    def _on_mode(self, place: int) -> None:
        self.mode = list(TokenMode)[place]
        storage.settings().setValue(KEY, self.mode.value)
        self.mode_changed.emit()
