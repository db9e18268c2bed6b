"""What the Models page says of quality: the comparison as one of its sections, and the dialog that makes AWQ
checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction

from app.panels.quality_panel import QualityPanel
from app.quantize_dialog import QuantizeDialog
from app.session import Session
from app.words import sentence
from engine import ModelSpec, why_unsupported

if TYPE_CHECKING:
    from app.pages.models import ModelsPage, Subject

TITLE = "Compare with the original"


class QualitySection(QObject):
    """Puts the chosen model on the comparison's panel, and opens the dialog."""

    def __init__(self, page: ModelsPage, session: Session) -> None:
        super().__init__(page)
        self._page, self._session = page, session
        self.panel = QualityPanel(session)
        self.dialog: QuantizeDialog | None = None
        page.add_section(TITLE, self.panel)
        self.compare_action = QAction("Compare the model with its original", page)
        self.compare_action.triggered.connect(lambda: page.show_section(self.panel))
        self.awq_action = QAction("Make an AWQ checkpoint …", page)
        self.awq_action.triggered.connect(lambda: self.make_awq(page.spec("none")))
        page.addActions([self.compare_action, self.awq_action])
        page.subject_changed.connect(self._on_subject)
        self.panel.awq_asked.connect(self.make_awq)
        page.fit.make_asked.connect(lambda: self.make_awq(page.spec("none")))

    def make_awq(self, spec: ModelSpec | None) -> None:
        """Opens the dialog for this model, or the one that is open."""
        if self.dialog is not None:
            self.dialog.raise_()
            self.dialog.activateWindow()
            return
        self.dialog = QuantizeDialog(self._page.window(), self._session, spec)
        self.dialog.load_asked.connect(self._page.load_asked)
        self.dialog.made.connect(self._on_made)
        self.dialog.finished.connect(self._on_closed)
        self.dialog.open()

    @property
    def running(self) -> bool:
        """Whether something is being measured."""
        return self.panel.quality.running

    def stop(self) -> None:
        self.panel.quality.cancel()

    def close_down(self) -> None:
        """The window closes."""
        self.panel.close_down()

    def _on_made(self, folder: Path) -> None:
        self._page.open_folder(folder)

    def _on_closed(self) -> None:
        self.dialog = None

    def _on_subject(self, subject: Subject) -> None:
        why = subject.error or subject.item.problem
        if not why and subject.hub is not None:
            why = "Download it first."
        if not why and subject.info is not None:
            why = why_unsupported(subject.info.model_type)
        spec = self._page.spec("none")
        if why or spec is None or subject.info is None:
            self.panel.show_model(None, sentence(why))
        else:
            self.panel.show_model(replace(spec, dtype="auto"))
