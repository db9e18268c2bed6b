"""The head of the Models page's right side: what the chosen model is, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.models.facts import Fact
from app.ui import theme
from app.ui.labels import Note, label
from app.ui.line import Line


class FactGrid(QWidget):
    """Names over values, in as many columns as there is room for."""

    LEAST = 132  # a column, in pixels of the design

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("models_facts")
        self.cells: list[tuple[QLabel, QLabel]] = []
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme.changes.theme_changed.connect(self._on_theme)

    def show_facts(self, facts: Sequence[Fact]) -> None:
        while len(self.cells) < len(facts):
            name, value = label("", "note"), label("", "")
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            for each in (name, value):
                each.setParent(self)
            self.cells.append((name, value))
        for i, (name, value) in enumerate(self.cells):
            there = i < len(facts)
            name.setVisible(there)
            value.setVisible(there)
            fact = facts[i] if there else Fact("", "")
            name.setText(fact.name)
            value.setText(fact.value)
            value.setAccessibleName(f"{fact.name}: {fact.value}")
            for each in (name, value):
                each.setToolTip(fact.tip)
        self.updateGeometry()
        self._place(self.width(), move=True)

    def words(self) -> list[str]:
        """What can be read: "name: value"."""
        return [f"{name.text()}: {value.text()}" for name, value in self.cells if not name.isHidden()]

    def _shown(self) -> list[tuple[QLabel, QLabel]]:
        return [cell for cell in self.cells if not cell[0].isHidden()]

    def _place(self, width: int, *, move: bool) -> int:
        """Gives columns of one width to as many cells as fit; a value too wide takes two. Returns the height."""
        px, shown = theme.px, self._shown()
        if not shown or width <= 0:
            return 0
        gap = px(16)
        columns = max(1, min(5, (width + gap) // (px(self.LEAST) + gap)))
        pitch = (width + gap) / columns
        y = column = high = 0
        for name, value in shown:
            value.ensurePolished()
            name.ensurePolished()
            sizes = name.sizeHint(), value.sizeHint()
            span = min(columns, -(-(value.sizeHint().width() + gap) // max(1, int(pitch))))
            if column and column + span > columns:
                y, column = y + high + px(10), 0
            high = sizes[0].height() + px(1) + sizes[1].height()
            if move:
                x, wide = round(column * pitch), round(span * pitch) - gap
                name.setGeometry(QRect(QPoint(x, y), QSize(wide, sizes[0].height())))
                value.setGeometry(QRect(QPoint(x, y + sizes[0].height() + px(1)), QSize(wide, sizes[1].height())))
            column += span
        return y + high

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._place(width, move=False)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(400), self.heightForWidth(max(self.width(), theme.px(400))))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(self.LEAST), 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place(self.width(), move=True)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()  # the height that is asked for was that of another width

    def _on_theme(self) -> None:
        self.updateGeometry()
        self._place(self.width(), move=True)


class _Title(Line):
    """A model's name, large; cut in the middle, where names differ least."""

    def cut(self, width: int) -> str:
        return self.fontMetrics().elidedText(self._whole, Qt.TextElideMode.ElideMiddle, width)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self.font())
        painter.setPen(theme.current().text)
        painter.drawText(QRectF(self.rect()), Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.end()

    def _on_theme(self) -> None:
        self.setFont(theme.ui(20, 500))
        self.updateGeometry()
        self.fit()


class ModelHeader(QFrame):
    """Name, place, facts; below them whatever is put into `column`, such as the download."""

    copied = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("models_header")
        self.setProperty("role", "panel")
        self._copy = ""
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.title = _Title("models_title")
        self.place = Line("models_place")
        self.copy = QPushButton("Copy")
        self.copy.setObjectName("models_copy")
        self.copy.setProperty("role", "quiet")
        self.copy.clicked.connect(self._on_copy)
        self.facts = FactGrid()
        self.words = Note("models_words")
        self._head = QHBoxLayout()
        self._head.addWidget(self.place, 1)
        self._head.addWidget(self.copy)
        self.column = QVBoxLayout(self)
        self.column.addWidget(self.title)
        self.column.addLayout(self._head)
        self.column.addWidget(self.facts)
        self.column.addWidget(self.words)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def show_model(self, title: str, place: str, copied: str, facts: Sequence[Fact]) -> None:
        self.title.say(title)
        self.place.say(place)
        self._copy = copied
        self.copy.setVisible(bool(copied))
        self.copy.setToolTip(copied)
        self.copy.setAccessibleName(f"Copy {copied}")
        self.facts.show_facts(facts)
        self.facts.setVisible(bool(facts))

    def say(self, words: str, role: str = "note") -> None:
        """What is to be known before it is loaded: why it cannot be, that it is looked at."""
        self.words.say(words, role)

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._copy)
        self.copied.emit(self._copy)

    def _on_theme(self) -> None:
        px = theme.px
        self.column.setContentsMargins(px(16), px(14), px(16), px(14))
        self.column.setSpacing(px(8))
        self._head.setSpacing(px(8))
