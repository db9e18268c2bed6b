"""The command palette: every action by name, found by a few of its letters."""

from collections.abc import Sequence
from operator import itemgetter

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QPainter, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.language import tr
from app.ui.controls import line_edit
from app.ui.labels import Hairline
from app.ui.layout.boxes import fill, named
from app.ui.look import theme

ACTION = Qt.ItemDataRole.UserRole + 1
LINE, MOST_LINES = 32, 12


def match_score(words: str, text: str) -> int | None:
    """How well `words` fit `text`, lower is better; None when its letters are not all there in their order."""
    needle, hay = words.lower(), text.lower()
    starts = [i for i in range(len(hay)) if i == 0 or not hay[i - 1].isalnum()]
    for at in starts:
        if hay.startswith(needle, at):
            return 0 if at == 0 else 1
    if needle in hay:
        return 2
    score, position = 10, -1
    for letter in needle.replace(" ", ""):
        found = hay.find(letter, position + 1)
        if found < 0:
            return None
        score += 0 if found in starts or found == position + 1 else found - position
        position = found
    return score


def plain_name(action: QAction) -> str:
    return action.text().replace("&", "")


class _Line(QStyledItemDelegate):
    """An action's name at the left, its keys at the right."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(100, theme.px(LINE))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        tokens = theme.current()
        action: QAction = index.data(ACTION)
        rect: QRect = option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(tokens.hover)
            painter.drawRoundedRect(rect.adjusted(4, 1, -4, -1), 4, 4)
        inner = rect.adjusted(16, 0, -16, 0)
        painter.setFont(theme.ui(13))
        painter.setPen(tokens.text if action.isEnabled() else tokens.faint)
        tick = "✓  " if action.isCheckable() and action.isChecked() else ""
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, tick + plain_name(action))
        painter.setFont(theme.ui(12))
        painter.setPen(tokens.secondary)
        keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, keys)


class CommandPalette(QFrame):
    """Lies over its parent until an action is chosen, Esc is pressed or the focus goes elsewhere."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        named(self, "command_palette", "popup", said=tr("Command palette"))
        self._parent = parent
        self._actions: list[QAction] = []
        self._back: QWidget | None = None
        self.search = line_edit("palette_search", tr("Search actions"), tr("What do you want to do?"))
        self.search.setProperty("role", "search")
        self.model = QStandardItemModel(self)
        self.list = named(QListView(), "palette_list", "list", said=tr("Actions"))
        self.list.setModel(self.model)
        self.list.setItemDelegate(_Line(self.list))
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        fill(QVBoxLayout(self), self.search, Hairline(), self.list, margins=(1, 1, 1, 4), spacing=0)
        self.search.textChanged.connect(self._filter)
        self.search.returnPressed.connect(lambda: self._run(self.list.currentIndex()))
        self.search.installEventFilter(self)
        self.list.clicked.connect(self._run)
        self.hide()

    def open(self, actions: Sequence[QAction], back: QWidget | None) -> None:
        """Offers these actions; the focus returns to `back`."""
        self._actions, self._back = list(actions), back
        self.search.clear()
        self._filter("")
        self._fit()
        self.show()
        self.raise_()
        self.search.setFocus(Qt.FocusReason.PopupFocusReason)

    def _fit(self) -> None:
        parent = self._parent
        width = min(theme.px(560), parent.width() - 32)
        top = min(theme.px(64), parent.height() // 8)
        lines = min(max(self.model.rowCount(), 1), MOST_LINES)
        around = self.search.sizeHint().height() + theme.px(16)
        height = min(lines * theme.px(LINE) + around, parent.height() - top - 16)
        self.setGeometry(QRect(QPoint((parent.width() - width) // 2, top), QSize(width, height)))

    def dismiss(self) -> None:
        self.hide()
        if self._back is not None:
            self._back.setFocus()
            self._back = None

    def _filter(self, words: str) -> None:
        scored = [(match_score(words.strip(), plain_name(action)), action) for action in self._actions]
        found = [(score, action) for score, action in scored if score is not None]
        self.model.clear()
        for _, action in sorted(found, key=itemgetter(0)):
            item = QStandardItem(plain_name(action))
            item.setData(action, ACTION)
            item.setEnabled(action.isEnabled())
            self.model.appendRow(item)
        self._move(0, 1)
        self._fit()

    def _move(self, start: int, by: int) -> None:
        """Selects the next action that can be done, from `start` on."""
        count = self.model.rowCount()
        row = start
        for _ in range(count):
            row %= count
            if self.model.item(row).isEnabled():
                self.list.setCurrentIndex(self.model.index(row, 0))
                return
            row += by

    def _run(self, index: QModelIndex) -> None:
        action: QAction | None = index.data(ACTION)
        if action is None or not action.isEnabled():
            return
        self.dismiss()
        action.trigger()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusOut and self.isVisible():
            self._back = None
            self.hide()
        elif isinstance(event, QKeyEvent) and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride):
            if event.key() == Qt.Key.Key_Escape:
                event.accept()
                if event.type() == QEvent.Type.KeyPress:
                    self.dismiss()
                return True
            if event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up) and event.type() == QEvent.Type.KeyPress:
                by = 1 if event.key() == Qt.Key.Key_Down else -1
                self._move(self.list.currentIndex().row() + by, by)
                return True
        return super().eventFilter(watched, event)
