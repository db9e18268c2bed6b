"""What the Models page says of quality: the comparison, one of its sections, and the dialog that makes AWQ
checkpoints."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.models.subject import Subject
from app.quality.panel import QualityPanel
from app.quality.quantize_dialog import QuantizeDialog
from app.session.session import Session
from app.words import sentence
from engine import ModelSpec


class QualitySection(QObject):
    """Puts the chosen model on the comparison's panel, and opens the dialog over `page`."""

    load_asked = Signal(object)  # ModelSpec
    made = Signal(object)  # Path of a new checkpoint

    def __init__(self, page: QWidget, session: Session) -> None:
        super().__init__(page)
        self._page, self._session = page, session
        self._spec: ModelSpec | None = None  # of the chosen model
        self.panel = QualityPanel(session)
        self.measuring = self.panel.quality
        self.dialog: QuantizeDialog | None = None
        self.compare_action = QAction(tr("Compare the model with its original"), page)
        self.awq_action = QAction(tr("Make an AWQ checkpoint …"), page)
        self.awq_action.triggered.connect(self._make_awq)
        self.panel.setup.awq_asked.connect(self.awq_action.trigger)

    def _make_awq(self) -> None:
        """Opens the dialog for the chosen model, or the one that is open."""
        if self.dialog is not None:
            self.dialog.raise_()
            self.dialog.activateWindow()
            return
        self.dialog = QuantizeDialog(self._page.window(), self._session, self._spec)
        self.dialog.load_asked.connect(self.load_asked)
        self.dialog.made.connect(self.made)
        self.dialog.finished.connect(self._on_closed)
        self.dialog.open()

    def show_subject(self, subject: Subject, spec: ModelSpec | None) -> None:
        """The comparison is of this model, which is loaded by `spec`, or says why it cannot be."""
        self._spec = spec
        why = subject.error or subject.item.problem or subject.why_not
        if why or spec is None or subject.info is None:
            self.panel.show_model(None, sentence(why))
        else:
            self.panel.show_model(replace(spec, dtype="auto"))

    def _on_closed(self) -> None:
        self.dialog = None
