"""Deleting a model from the Hugging Face cache, after a question that names the bytes."""

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QMessageBox, QWidget

from app.language import tr
from app.models.items import Item
from app.models.rows import ModelRows
from app.session.session import Session
from app.ui.banner import Banner
from app.words import bytes_words, sentence
from engine import InvalidInput
from engine.checkpoints import ModelEntry, forget, freed_by


class Deletion(QObject):
    """Asks over `window`, and tells on `notice`. `rows` know which model is loaded."""

    done = Signal()

    def __init__(self, window: QWidget, session: Session, notice: Banner, rows: ModelRows) -> None:
        super().__init__(window)
        self._window, self._session, self._notice, self._rows = window, session, notice, rows

    def ask(self, item: Item) -> None:
        """Refuses what is loaded; else asks."""
        entry = item.entry
        if self._rows.loaded(item):
            loaded = tr("{model} is loaded", model=item.name)
            self._notice.tell("warning", loaded, tr("Unload it before its files are deleted."))
        elif entry is not None:
            self._session.start(self._ask(entry))

    async def _ask(self, entry: ModelEntry) -> None:
        try:
            freed = await self._session.off_thread(lambda: freed_by(entry))
        except (InvalidInput, OSError) as error:
            words = tr("{model} cannot be deleted", model=entry.name)
            self._notice.tell("error", words, sentence(str(error)))
            return
        question = tr("Delete {model} from this machine?", model=entry.name)
        cancel = QMessageBox.StandardButton.Cancel
        box = QMessageBox(QMessageBox.Icon.NoIcon, tr("Delete a model"), question, cancel, self._window)
        box.setObjectName("delete_dialog")
        box.setInformativeText(tr("This frees {bytes}. It can be downloaded again.", bytes=bytes_words(freed)))
        delete = box.addButton(tr("Delete"), QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(cancel)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        delete.clicked.connect(lambda: self._session.start(self._delete(entry)))
        box.open()

    async def _delete(self, entry: ModelEntry) -> None:
        try:
            freed = await self._session.off_thread(lambda: forget(entry))
        except (InvalidInput, OSError) as error:
            words = tr("{model} was not deleted", model=entry.name)
            self._notice.tell("error", words, sentence(str(error)))
        else:
            words = tr("{model} was deleted", model=entry.name)
            self._notice.tell("info", words, tr("{bytes} are free again.", bytes=bytes_words(freed)))
        self.done.emit()
