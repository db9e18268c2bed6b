"""What nobody asked for, told: an error that was not expected, and how the last start ended. And the log."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QBoxLayout

from app.language import tr
from app.preferences import KEEP_LOG
from app.reports.reporting import Reports
from app.reports.unexpected import Mishap
from app.ui.banner import Banner
from app.window.main_window import MainWindow

if TYPE_CHECKING:
    from app.desktop.log_window import LogWindow

log = logging.getLogger("window")
KEPT = tr("The window goes on. Texts and runs so far are kept.")


def show_folder(folder: Path) -> None:
    """In the desktop's own program for that."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))


class Incidents(QObject):
    """A banner of its own, which nothing else of the window takes away."""

    def __init__(self, window: MainWindow, reports: Reports) -> None:
        super().__init__(window)
        self._window, self._reports = window, reports
        self._log_window: LogWindow | None = None
        self.banner = Banner()
        self.banner.setObjectName("incident_banner")
        central = window.centralWidget()
        layout = central.layout() if central is not None else None
        assert isinstance(layout, QBoxLayout)
        layout.insertWidget(layout.indexOf(window.banner), self.banner)
        window.window_actions.add_help(tr("Log …"), self.show_log)
        session = window.session
        session.load_failed.connect(self._on_load_failed)
        session.notice_raised.connect(lambda words: log.warning("%s", words))
        session.engine_restarts.connect(lambda words: log.error("%s; the engine is started again", words))
        session.engine_died.connect(self._on_engine_died)
        KEEP_LOG.on_change(lambda: reports.log.keep_file(self._logs()), self)
        reports.unexpected.happened.connect(self._on_mishap)
        if reports.crashes:
            self._tell_crashes()

    def show_log(self) -> None:
        from app.desktop.log_window import LogWindow  # not before the window's first paint

        if self._log_window is None:
            opened = self._log_window = LogWindow(self._window, self._reports.log, self._logs(), show_folder)
            opened.destroyed.connect(self._on_log_closed)
        self._log_window.show()
        self._log_window.raise_()
        self._log_window.activateWindow()

    def _logs(self) -> Path | None:
        return self._reports.logs if KEEP_LOG.value else None

    def _on_log_closed(self) -> None:
        self._log_window = None

    def _on_mishap(self, mishap: Mishap) -> None:
        again = tr("It has happened {count:,} times.", count=mishap.count) if mishap.count > 1 else ""
        title, show = tr("Something went wrong: {what}", what=mishap.title), (tr("Show the log"), self.show_log)
        words = " ".join(filter(None, (mishap.notes, KEPT, again)))
        self.banner.tell("error", title, words, details=mishap.details, action=show)

    def _on_load_failed(self, words: str) -> None:
        if words:
            log.warning("the model was not loaded: %s", words)

    def _on_engine_died(self, words: str) -> None:
        log.error("%s", words)
        with contextlib.suppress(OSError):
            self._reports.of_engine(words, self._window.session.stacks)

    def _tell_crashes(self) -> None:
        crashes = self._reports.crashes
        last = crashes[-1]
        when = strftime(tr("%d %B at %H:%M"), localtime(last.ended)).lstrip("0")
        title = tr("Batchscope ended unexpectedly on {when}", when=when)
        if len(crashes) > 1:
            title = tr(
                "Batchscope ended unexpectedly on {when}, and {more:,} more such ends", when=when, more=len(crashes) - 1
            )
        self.banner.tell(
            "warning",
            title,
            tr(
                "{why}. Runs were kept up to then. A report was left on this machine; it is sent nowhere.", why=last.why
            ),
            details="\n\n".join(crash.text for crash in crashes),
            action=(tr("Show"), self._on_show),
            dismiss=(tr("Forget"), self._on_forget),
        )

    def _on_show(self) -> None:
        from app.desktop.report_dialog import ReportDialog

        dialog = ReportDialog(self._window, self._reports.crashes, show_folder)
        dialog.forgotten.connect(self._on_forget)
        dialog.open()

    def _on_forget(self) -> None:
        for crash in self._reports.crashes:
            with contextlib.suppress(OSError):
                crash.path.unlink(missing_ok=True)
