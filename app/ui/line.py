"""A line of words that changes often: it is painted, and asks nobody for another layout.

A QLabel asks its parent to lay out anew at every change of its text, the parent asks its own, and so on up to the
window with all its docks: at ten changes a second that cost more than painting them.
"""

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.ui.look import theme
from app.ui.painted import Painted


class Line(Painted):
    """One line in the secondary colour, in the first of its wordings that there is room for, or cut with … where the
    room ends; the whole is then in the tip.

    It takes whatever width it is given, and says how wide its text is to nobody.
    """

    mode = Qt.TextElideMode.ElideRight

    def __init__(
        self, name: str, alignment: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft, size: float = 13, weight: int = 400
    ) -> None:
        super().__init__(name)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._alignment, self._size, self._weight, self._width = alignment, size, weight, 0
        self._whole = self._shown = ""
        self._shorter: tuple[str, ...] = ()
        self.setFont(theme.ui(size, weight))

    def text(self) -> str:
        """What can be read: the whole text, or its beginning."""
        return self._shown

    def say(self, text: str, *shorter: str) -> None:
        """`shorter` wordings, from long to short, stand in for the whole where it has no room."""
        text = " ".join(text.splitlines())  # names may have more than one line
        if (text, shorter) != (self._whole, self._shorter):
            self._whole, self._shorter = text, shorter
            self.setAccessibleName(text)
            self.fit()

    def setAlignment(self, alignment: Qt.AlignmentFlag) -> None:
        self._alignment = alignment
        self.update()

    def cut(self, width: int) -> str:
        """What there is room for."""
        metrics, wordings = self.fontMetrics(), (self._whole, *self._shorter)
        fits = (words for words in wordings if metrics.horizontalAdvance(words) <= width)
        return next(fits, metrics.elidedText(wordings[-1], self.mode, width))

    def color(self) -> QColor:
        return theme.current().secondary

    def fit(self) -> None:
        """Cuts the text anew."""
        shown = self.cut(max(0, self.width()))
        self.setToolTip(self._whole if shown != self._whole else "")
        if shown != self._shown:
            self._shown = shown
            self.update()

    def set_width(self, width: int) -> None:
        """Takes so much room, whatever it says, or what there is."""
        if width == self._width:
            return
        self._width = width
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        return QSize(self._width, self.fontMetrics().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def resizeEvent(self, event: object) -> None:
        self.fit()

    def showEvent(self, event: object) -> None:
        """Qt's style sheets bring back the font that it had when it was made, as it is shown for the first time."""
        self.setFont(theme.ui(self._size, self._weight))
        self.fit()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.setFont(self.font())
        painter.setPen(self.color())
        painter.drawText(QRectF(self.rect()), self._alignment | Qt.AlignmentFlag.AlignVCenter, self._shown)

    def restyle(self) -> None:
        self.setFont(theme.ui(self._size, self._weight))
        self.fit()
        super().restyle()


class Parts(Line):
    """Several facts on one line; those at the end give way whole where there is no room, and none is cut. Where not all
    have room, what is not `brief` gives way first."""

    SEPARATOR = "  ·  "

    def __init__(self, name: str, size: float = 13) -> None:
        super().__init__(name, size=size)
        self._parts: list[str] = []
        self._brief: list[str] = []

    def say_parts(self, parts: list[str], brief: list[str] | None = None) -> None:
        """`brief` are those of them that matter most, in their order; None: all do."""
        brief = parts if brief is None else brief
        if (parts, brief) != (self._parts, self._brief):
            self._parts, self._brief = parts, brief
            self.setAccessibleName(", ".join(parts))
            self.fit()

    def cut(self, width: int) -> str:
        parts, metrics = self._parts, self.fontMetrics()
        if metrics.horizontalAdvance(self.SEPARATOR.join(parts)) > width:
            parts = self._brief
        while parts and metrics.horizontalAdvance(self.SEPARATOR.join(parts)) > width:
            parts = parts[:-1]
        return self.SEPARATOR.join(parts)

    def fit(self) -> None:
        self._whole = self.SEPARATOR.join(self._parts)
        super().fit()
