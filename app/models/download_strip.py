"""The download of the chosen hub model: its button, how far it is, and how it goes on."""

from PySide6.QtWidgets import QWidget

from app.language import tr, trn
from app.models.items import done_words, joined, rate_words, rest_words
from app.session.downloads import Download, Downloads, DownloadState
from app.ui.controls import button
from app.ui.labels import Note, set_role
from app.ui.layout.boxes import column, row
from app.ui.layout.zoomed import zoomed
from app.ui.line import Line
from app.ui.progress import Progress
from app.words import bytes_words, sentence
from engine.checkpoints import HubModel


class DownloadStrip(QWidget):
    """One button that begins, cancels, resumes; hidden where there is nothing to fetch."""

    def __init__(self, downloads: Downloads) -> None:
        super().__init__()
        self._downloads = downloads
        self._model: tuple[str, str | None] = ("", None)
        self._hub: HubModel | None = None
        self._part = 0
        self.setObjectName("models_download")
        self.button = button("models_download_button", tr("Download"), self._on_clicked)
        self.progress = Progress("models_download_progress", tr("Download"))
        self.words = Line("models_download_words")
        self.error = Note("models_download_error", "error")
        beside = column(None, self.words, self.progress, None, spacing=4)
        line = zoomed(row(self.button, (beside, 1)), spacing=12)
        self.setLayout(zoomed(column(line, self.error), spacing=6))
        downloads.changed.connect(self._on_changed)
        self.hide()

    def show_model(self, source: str, revision: str | None, hub: HubModel | None, part: int) -> None:
        """Takes up the chosen model. `hub`: what is to be fetched, None where nothing is; `part` bytes of it are here
        from a download that was cut short."""
        self._model, self._hub, self._part = (source, revision), hub, part
        self._show()

    @property
    def _entry(self) -> Download | None:
        return self._downloads.find(*self._model)

    def start(self) -> None:
        """Begins, or goes on."""
        entry, hub = self._entry, self._hub
        if entry is not None:
            self._downloads.start(entry.id, entry.revision, entry.total)
        elif hub is not None:
            self._downloads.start(hub.id, hub.revision, hub.size)

    def _on_clicked(self) -> None:
        entry = self._entry
        if entry is not None and entry.active:
            self._downloads.cancel(entry)
        else:
            self.start()

    def _on_changed(self, entry: Download) -> None:
        if (entry.id, entry.revision) == self._model:
            self._show()

    def _show(self) -> None:
        entry, hub = self._entry, self._hub
        self.progress.setVisible(entry is not None)
        self.error.say(sentence(entry.error) if entry is not None else "")
        if entry is not None:
            self._show_download(entry)
        elif hub is None or hub.problem:
            self.hide()
        else:
            self._show_offer(hub)

    def _show_offer(self, hub: HubModel) -> None:
        """Nothing of it is here, or a part that an earlier download left."""
        size = bytes_words(hub.size)
        if self._part:
            here = tr("{done} of {all} are here and are not fetched again", done=bytes_words(self._part), all=size)
            self._say(tr("Resume download"), here)
        else:
            download = tr("Download {bytes}", bytes=size) if hub.size else tr("Download")
            files = trn(
                "{count:,} file, into the Hugging Face cache",
                "{count:,} files, into the Hugging Face cache",
                len(hub.files),
            )
            self._say(download, files)

    def _show_download(self, entry: Download) -> None:
        figures = done_words(entry)
        match entry.state:
            case DownloadState.WAITING:
                self._say_cancel(tr("Waits for the download before it"))
            case DownloadState.RUNNING if entry.cancelled.is_set():
                self._say_cancel(tr("Stopping …"))
            case DownloadState.RUNNING:
                stage = entry.stage if not entry.total else ""
                figures = joined(stage, figures, rate_words(entry), rest_words(entry))
                self._say_cancel(figures or tr("Asking the hub …"))
            case _ if entry.done:
                stopped = tr("Stopped at {figures}; what is there is not fetched again", figures=figures)
                self._say(tr("Resume download"), stopped)
            case _:
                self._say(tr("Try again"), "")
        self.button.setEnabled(not (entry.active and entry.cancelled.is_set()))
        self.progress.show_share(entry.share if entry.total else None)

    def _say_cancel(self, beside: str) -> None:
        self._say(tr("Cancel"), beside, tr("Cancel the download"), role="")

    def _say(self, words: str, beside: str, said: str = "", *, role: str = "primary") -> None:
        """What the button says, and what is said beside it; `said` for screen readers, where that is more."""
        self.button.setText(words)
        self.button.setAccessibleName(said or words)
        if self.button.property("role") != role:
            set_role(self.button, role)
        self.button.setEnabled(True)
        self.words.say(beside)
        self.show()
