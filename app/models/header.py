"""The head of the Models page's right side: what the chosen model is, and what can be done about it."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy, QWidget

from app.language import tr
from app.models.facts import Fact
from app.ui.controls import button
from app.ui.labels import Note, label
from app.ui.layout.boxes import column, row
from app.ui.layout.zoomed import zoomed
from app.ui.line import Line
from app.ui.look import theme


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
        theme.changes.theme_changed.connect(self._fit)

    def show_facts(self, facts: Sequence[Fact]) -> None:
        while len(self.cells) < len(facts):
            name, value = label("", "note"), label("", "")
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            name.setParent(self)
            value.setParent(self)
            self.cells.append((name, value))
        nothing = [Fact("", "")] * (len(self.cells) - len(facts))
        for (name, value), fact in zip(self.cells, (*facts, *nothing)):
            for each, words in ((name, fact.name), (value, fact.value)):
                each.setVisible(bool(fact.name))
                each.setText(words)
                each.setToolTip(fact.tip)
            value.setAccessibleName(f"{fact.name}: {fact.value}")
        self._fit()

    def _fit(self) -> None:
        self.updateGeometry()
        self._place(self.width(), move=True)

    def _place(self, width: int, *, move: bool) -> int:
        """Gives columns of one width to as many cells as fit; a value too wide takes two. Returns the height."""
        px, gap = theme.px, theme.px(16)
        columns = max(1, min(5, (width + gap) // (px(self.LEAST) + gap)))
        pitch = (width + gap) / columns
        y = at = high = 0
        for name, value in self.cells if width > 0 else ():
            if name.isHidden():
                continue
            for each in (name, value):
                each.ensurePolished()
            upper, lower = name.sizeHint().height(), value.sizeHint().height()
            span = min(columns, -(-(value.sizeHint().width() + gap) // max(1, int(pitch))))
            if at and at + span > columns:
                y, at = y + high + px(10), 0
            high = upper + px(1) + lower
            if move:
                x, wide = round(at * pitch), round(span * pitch) - gap
                name.setGeometry(x, y, wide, upper)
                value.setGeometry(x, y + upper + px(1), wide, lower)
            at += span
        return y + high

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


class _Title(Line):
    """A model's name, large; cut in the middle, where names differ least."""

    mode = Qt.TextElideMode.ElideMiddle

    def color(self) -> QColor:
        return theme.current().text


class ModelHeader(QFrame):
    """Name, place, facts; below them whatever is put into `column`, such as the download."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("models_header")
        self.setProperty("role", "panel")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.title = _Title("models_title", size=20, weight=500)
        self.place = Line("models_place")
        self.copy = button("models_copy", tr("Copy"), self._on_copy, role="quiet")
        self.facts = FactGrid()
        self.words = Note("models_words")  # what is to be known before it is loaded: why it cannot be, that it is read
        head = zoomed(row((self.place, 1), self.copy), spacing=8)
        self.column = zoomed(column(self.title, head, self.facts, self.words), (16, 14, 16, 14), 8)
        self.setLayout(self.column)

    def show_model(self, title: str, place: str, copied: str, facts: Sequence[Fact]) -> None:
        self.title.say(title)
        self.place.say(place)
        self.copy.setVisible(bool(copied))
        self.copy.setToolTip(copied)
        self.copy.setAccessibleName(tr("Copy {what}", what=copied))
        self.facts.show_facts(facts)
        self.facts.setVisible(bool(facts))

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.copy.toolTip())
