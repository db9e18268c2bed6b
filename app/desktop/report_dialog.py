"""What a crash report says, before anybody decides what becomes of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.language import tr
from app.reports.crash import CrashReport
from app.ui.controls import button
from app.ui.labels import Note
from app.ui.layout.boxes import fill, named, row
from app.ui.look import theme
from app.ui.sheets.dialog import Dialog

WORDS = tr(
    "This stays on this machine: it is sent nowhere. Names of people, of the machine and of home folders were taken "
    "out; look through it before you hand it on."
)


class ReportDialog(Dialog):
    """The text as it would be handed on."""

    forgotten = Signal()

    def __init__(self, parent: QWidget, reports: Sequence[CrashReport], show: Callable[[Path], object]) -> None:
        super().__init__(parent, "report_dialog", tr("Crash report") if len(reports) == 1 else tr("Crash reports"))
        words = Note("report_words")
        words.say(WORDS)
        self.text = named(QPlainTextEdit("\n\n".join(r.text for r in reports)), "report_text", said=tr("The report"))
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setFont(theme.mono(12))
        copy = button("report_copy", tr("Copy"), lambda: QGuiApplication.clipboard().setText(self.text.toPlainText()))
        folder = button("report_folder", tr("Show the folder"), lambda: show(reports[0].path.parent))
        forget = button("report_forget", tr("Forget"), self._on_forget, tip=tr("Deletes the report"))
        close = button("report_close", tr("Close"), self.accept, role="primary")
        fill(self.column, words, (self.text, 1), row(copy, folder, None, forget, close, spacing=8), margins=None)
        self.resize(parent.size() * 0.7)
        close.setFocus()

    def _on_forget(self) -> None:
        self.forgotten.emit()
        self.accept()
