"""A layout that fills lines from left to right, and begins another where there is no room."""

from PySide6.QtCore import QMargins, QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget


class Flow(QLayout):
    """Items keep their preferred width. With `last_right`, the last one ends its line at the right edge."""

    def __init__(self, parent: QWidget | None = None, *, last_right: bool = False) -> None:
        super().__init__(parent)
        self._items: list[QLayoutItem] = []
        self._last_right = last_right
        self.gap = 8
        self.setContentsMargins(QMargins())

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._place(QRect(0, 0, width, 0), move=False)

    def sizeHint(self) -> QSize:
        shown = [item.sizeHint() for item in self._items if not item.isEmpty()]
        width = sum(size.width() for size in shown) + self.gap * max(0, len(shown) - 1)
        height = max((size.height() for size in shown), default=0)
        return QSize(width, height).grownBy(self.contentsMargins())

    def minimumSize(self) -> QSize:
        size = QSize()
        for item in self._items:
            if not item.isEmpty():
                size = size.expandedTo(item.minimumSize())
        return size.grownBy(self.contentsMargins())

    def setGeometry(self, rect: QRect) -> None:
        super().setGeometry(rect)
        self._place(rect, move=True)

    def _place(self, rect: QRect, *, move: bool) -> int:
        """Puts the items into lines; returns the height they take."""
        inner = rect.marginsRemoved(self.contentsMargins())
        lines: list[list[tuple[QLayoutItem, QSize]]] = [[]]
        x = 0
        for item in self._items:
            if item.isEmpty():
                continue
            size = QSize(min(item.sizeHint().width(), max(1, inner.width())), item.sizeHint().height())
            if lines[-1] and x + size.width() > inner.width():
                lines.append([])
                x = 0
            lines[-1].append((item, size))
            x += size.width() + self.gap
        y = inner.top()
        last = self._items[-1] if self._items else None
        for line in lines:
            high, x = max((size.height() for _, size in line), default=0), inner.left()
            for item, size in line:
                if item is last and self._last_right:
                    x = max(x, inner.left() + inner.width() - size.width())
                if move:
                    item.setGeometry(QRect(QPoint(x, y + (high - size.height()) // 2), size))
                x += size.width() + self.gap
            y += high + self.gap
        margins = self.contentsMargins()
        return max(0, y - self.gap - rect.top()) + margins.bottom()
