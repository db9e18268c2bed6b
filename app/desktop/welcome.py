"""The card of the very first start: what this is, and three ways in. It hinders nobody."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QCoreApplication, QEvent, QObject, QRect, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QFrame, QVBoxLayout, QWidget

from app.language import tr
from app.preferences import THEME
from app.ui.controls import DropDown, button
from app.ui.labels import label
from app.ui.layout.boxes import fill, named, row
from app.ui.look import theme

WIDE, AROUND = 560, 24  # pixels of the design
TITLE = tr("Welcome to Batchscope")
WORDS = tr(
    "It sends a language model many prompts at once, and shows what the engine does with them: which requests share a "
    "step, where their memory goes, what each token costs. All of it runs on this machine."
)
ESC = tr("Esc closes this, and typing begins a prompt. The menu's Help brings it back.")
THEMES: list[tuple[str, object]] = [(tr("as the system"), "system"), (tr("dark"), "dark"), (tr("light"), "light")]
Way = tuple[str, str, Callable[[], object]]  # a button's words, what comes of it, and what does it


class Welcome(QFrame):
    """Lies over its parent until a way is chosen, Esc is pressed, the focus goes elsewhere, or something is typed,
    which goes `to`."""

    def __init__(self, parent: QWidget, ways: Sequence[Way], to: QWidget) -> None:
        super().__init__(parent)
        named(self, "welcome", "popup", said=f"{TITLE}. {WORDS} {ESC}")
        self.setAutoFillBackground(True)
        self._to = to
        self.ways = [button(f"welcome_{at}", words, self._chosen(act)) for at, (words, _, act) in enumerate(ways)]
        self.ways[0].setProperty("role", "primary")
        self.theme = DropDown("welcome_theme", THEMES, tr("Theme"))
        self.theme.set_value(THEME.value)
        self.theme.activated.connect(lambda: THEME.set(self.theme.currentData()))
        self.close_button = button("welcome_close", tr("Close"), self.dismiss, role="quiet", tip="Esc")
        title, about, foot = label(TITLE, "scene"), label(WORDS, "caption"), label(ESC, "note")
        for wrapped in (about, foot):
            wrapped.setWordWrap(True)
        lines = []
        for each, (_, what, _) in zip(self.ways, ways, strict=True):
            each.setAccessibleDescription(what)
            told = label(what, "secondary")
            told.setWordWrap(True)
            lines.append(row((each, 2), (told, 3), spacing=12))
        self.theme.setMinimumContentsLength(len(THEMES[0][0]))
        chooser = row(label(tr("Theme"), "secondary"), self.theme, None, spacing=12)
        layout = fill(QVBoxLayout(self), title, about, 8, *lines, 8, margins=(28, 24, 28, 16), spacing=10)
        fill(layout, chooser, 4, margins=None)
        fill(layout, row((foot, 1), self.close_button, spacing=12), margins=None)
        parent.installEventFilter(self)
        theme.changes.theme_changed.connect(self._fit)
        for child in self.findChildren(QWidget):
            child.installEventFilter(self)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._on_focus)
        self.hide()

    def open(self) -> None:
        """Shows itself; Tab goes through it."""
        self.theme.set_value(THEME.value)
        self._fit()
        self.show()
        self.raise_()
        self.ways[0].setFocus(Qt.FocusReason.PopupFocusReason)

    def dismiss(self) -> None:
        """The focus goes where typing goes."""
        self.hide()
        self._to.setFocus()

    def _on_focus(self, before: QWidget | None, now: QWidget | None) -> None:
        """Whoever goes on elsewhere in the window needs it no more."""
        around: QObject | None = now
        while around is not None and around is not self:
            around = around.parent()
        if around is None and now is not None and now.window() is self.window():
            self.hide()

    def _chosen(self, act: Callable[[], object]) -> Callable[[], None]:
        def go() -> None:
            self.dismiss()
            act()

        return go

    def _fit(self) -> None:
        around = self.parentWidget()
        layout = self.layout()
        if around is None or layout is None:
            return
        width = min(theme.px(WIDE), around.width() - 2 * AROUND)
        layout.activate()
        height = min(max(layout.heightForWidth(width), layout.minimumSize().height()), around.height() - 2 * AROUND)
        left, top = (around.width() - width) // 2, (around.height() - height) // 3
        self.setGeometry(QRect(left, max(top, AROUND), width, height))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.parent():
            if event.type() == QEvent.Type.Resize and self.isVisible():
                self._fit()
        elif isinstance(event, QKeyEvent) and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride):
            return self._heard(event)
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not self._heard(event):
            super().keyPressEvent(event)

    def _heard(self, event: QKeyEvent) -> bool:
        """Esc, and what is typed: a letter is the prompt's."""
        pressed = event.type() == QEvent.Type.KeyPress
        if event.key() == Qt.Key.Key_Escape:
            event.accept()
            if pressed:
                self.dismiss()
            return True
        text = event.text()
        if not (text.isprintable() and text.strip()) or event.modifiers() & ~Qt.KeyboardModifier.ShiftModifier:
            return False
        event.accept()
        if pressed:
            self.dismiss()
            typed = QKeyEvent(QEvent.Type.KeyPress, event.key(), event.modifiers(), text)
            QCoreApplication.sendEvent(self._to, typed)
        return True
