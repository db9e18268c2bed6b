"""Copies or saves what is on show: a table as text, a widget as a picture as it looks or as a drawing to edit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from PySide6.QtCore import QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QAction, QColor, QGuiApplication, QPainter, QPixmap, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from app import storage
from app.language import tr
from app.ui.look import theme

FOLDER = "export/folder"
SHARP, MARGIN = 2, 12  # device pixels a pixel in a picture that is saved; pixels of the design around it


class Entry(NamedTuple):
    """One kind of file. `write` raises OSError; what is text can be copied too."""

    kind: str
    ending: str
    write: Callable[[Path], object]
    text: Callable[[], str] | None = None

    @property
    def short(self) -> str:
        return self.kind if self.ending in (".md", ".bsrace") else self.ending[1:].upper()


class Table(Protocol):
    """A table that can be exported."""

    def markdown(self) -> str: ...
    def csv(self) -> str: ...
    def json(self) -> str: ...


def text_entry(kind: str, ending: str, text: Callable[[], str]) -> Entry:
    return Entry(kind, ending, lambda path: path.write_text(text(), encoding="utf-8"), text)


def table_entries(table: Callable[[], Table | None]) -> list[Entry]:
    """Markdown for a page, CSV for a spreadsheet, JSON for a script. `table` gives what is exported now."""

    def text(form: Callable[[Table], str]) -> str:
        now = table()
        return form(now) if now is not None else ""

    return [
        text_entry("Markdown", ".md", lambda: text(lambda now: now.markdown())),
        text_entry("CSV", ".csv", lambda: text(lambda now: now.csv())),
        text_entry("JSON", ".json", lambda: text(lambda now: now.json())),
    ]


def picture_entries(widget: Callable[[], QWidget], title: str, *, on_panel: bool = False) -> list[Entry]:
    """The widget as a picture or a drawing; `on_panel` gives one that has no ground of its own the panel's, and a
    margin."""

    def ground() -> QColor | None:
        return theme.current().panel if on_panel else None

    return [
        Entry(tr("Picture"), ".png", lambda path: write_picture(widget(), path, ground())),
        Entry(tr("Drawing"), ".svg", lambda path: write_drawing(widget(), path, title, ground())),
    ]


class ExportMenu(QMenu):
    """Offers the `entries`: copies those that are text, saves all of them; the first is written where a file's ending
    tells of none.

    `what` is saved, as the person is told. With `each` ("Save as") every kind of file has its own action, else one
    called `title` asks for the kind. `own` actions stand above; without `ready` nothing else can be done now.
    """

    failed = Signal(str)
    done = Signal(str)  # what was done, for people

    def __init__(
        self,
        parent: QWidget,
        entries: Sequence[Entry],
        *,
        title: str,
        what: str,
        stem: str,
        each: str = "",
        own: Sequence[QAction] = (),
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(parent)
        self._entries, self._title, self._what, self._stem, self._ready = entries, title, what, stem, ready
        self.addActions(list(own))
        if not own:
            for entry in entries:
                if entry.text is not None:
                    self._add(tr("Copy as {kind}", kind=entry.kind), self.copy, entry.kind)
        self.addSeparator()
        for entry in entries if each else entries[:1]:
            self._add(f"{each} {entry.short} …" if each else f"{title} …", self.ask, entry.kind)
        self.aboutToShow.connect(self._on_show)

    def _add(self, words: str, act: Callable[[str], None], kind: str) -> None:
        self.addAction(words).triggered.connect(lambda checked=False: act(kind))

    def copy(self, kind: str) -> None:
        text = next(entry.text for entry in self._entries if entry.kind == kind)
        if text is not None and self._ready():
            QGuiApplication.clipboard().setText(text())
            self.done.emit(tr("The table was copied as {kind}.", kind=kind))

    def ask(self, kind: str) -> None:
        """Asks where to save; the file's ending says how."""
        ending = next(entry.ending for entry in self._entries if entry.kind == kind)
        dialog = QFileDialog(self.parentWidget(), self._title, str(storage.settings().value(FOLDER, "")))
        dialog.setObjectName("export_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([f"{entry.kind} (*{entry.ending})" for entry in self._entries])
        dialog.selectNameFilter(f"{kind} (*{ending})")
        dialog.setDefaultSuffix(ending[1:])
        dialog.selectFile(f"{self._stem}{ending}")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.save)
        dialog.open()

    def save(self, path: str | Path) -> None:
        """Writes a file; `done` or `failed` says what came of it. Its folder is offered the next time."""
        path = Path(path)
        if not self._ready():
            return
        storage.settings().setValue(FOLDER, str(path.parent))
        entry = next((each for each in self._entries if each.ending == path.suffix.lower()), self._entries[0])
        try:
            entry.write(path)
        except OSError as error:
            endings = ", ".join(each.ending for each in self._entries)
            why = error.strerror or tr("{error}; choose a name that ends with {endings}", error=error, endings=endings)
            self.failed.emit(tr("{what} was not saved to {path}: {why}.", what=self._what, path=path, why=why))
        else:
            self.done.emit(tr("{what} was saved to {path}.", what=self._what, path=path))

    def _on_show(self) -> None:
        ready = self._ready()
        for action in self.actions():
            action.setEnabled(ready)


def table_menu(parent: QWidget, table: Callable[[], Table | None], stem: str) -> ExportMenu:
    """The menu of what is a table and nothing else."""
    title, what = tr("Save the table"), tr("The table")
    return ExportMenu(
        parent, table_entries(table), title=title, what=what, stem=stem, ready=lambda: table() is not None
    )


def write_picture(widget: QWidget, path: Path, ground: QColor | None = None) -> None:
    """As PNG, or as whatever picture the ending asks for; with a `ground`, a widget that has none of its own, and a
    margin. Raises OSError."""
    margin = theme.px(MARGIN) if ground is not None else 0
    pixmap = QPixmap((widget.size() + QSize(2 * margin, 2 * margin)) * SHARP)
    pixmap.setDevicePixelRatio(SHARP)
    pixmap.fill(ground if ground is not None else Qt.GlobalColor.transparent)
    _render(widget, pixmap, margin, ground)
    if not pixmap.save(str(path)):
        raise OSError(tr("no picture can be written there"))


def write_drawing(widget: QWidget, path: Path, title: str, ground: QColor | None = None) -> None:
    """As SVG. Raises OSError."""
    path.touch()  # raises what Qt would only print
    margin = theme.px(MARGIN) if ground is not None else 0
    size = widget.size() + QSize(2 * margin, 2 * margin)
    generator = QSvgGenerator()
    generator.setFileName(str(path))
    generator.setResolution(widget.logicalDpiY())  # else its points are smaller than those on the screen
    generator.setSize(size)
    generator.setViewBox(QRect(QPoint(), size))
    generator.setTitle(title)
    painter = QPainter(generator)
    if ground is not None:
        painter.fillRect(QRect(QPoint(), size), ground)
    _render(widget, painter, margin, ground)
    painter.end()


def _render(widget: QWidget, target: QPixmap | QPainter, margin: int, ground: QColor | None) -> None:
    flags = QWidget.RenderFlag.DrawChildren
    if ground is None:
        flags |= QWidget.RenderFlag.DrawWindowBackground
    widget.render(target, QPoint(margin, margin), QRegion(), flags)
