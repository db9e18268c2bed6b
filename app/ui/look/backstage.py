"""What an audience needs not see."""

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QWidget

from app.ui.look import theme


class Backstage(QObject):
    """Keeps widgets out of sight while presenting; those that were shown before or meanwhile are in sight after it."""

    def __init__(self, owner: QObject, *widgets: QWidget) -> None:
        super().__init__(owner)
        self._widgets, self._waiting, self._spared = widgets, set[QWidget](), set[QWidget]()
        for widget in widgets:
            widget.installEventFilter(self)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def spare(self, *widgets: QWidget) -> None:
        """These, and no others, an audience is to see after all."""
        self._spared = set(widgets)

    def _on_theme(self) -> None:
        if theme.presenting():
            for widget in self._widgets:
                self._take(widget)
        else:
            waiting, self._waiting = self._waiting, set()
            for widget in waiting:
                widget.show()

    def _take(self, widget: QWidget) -> None:
        if not widget.isHidden() and widget not in self._spared:
            self._waiting.add(widget)
            widget.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and theme.presenting() and isinstance(watched, QWidget):
            self._take(watched)
        return super().eventFilter(watched, event)
