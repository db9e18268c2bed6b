"""In the place of an engine's settings, where none is installed."""

from PySide6.QtWidgets import QWidget

from app.language import tr
from app.ui.labels import Heading, Note
from app.ui.layout.boxes import column
from app.words import sentence
from engine.jobs import engine_missing

REPLAYS = tr("Saved runs and races are shown with all panels, and the tour is replayed from its recordings.")


class ViewerSetup(QWidget):
    def __init__(self) -> None:
        super().__init__()
        told = Note("viewer_replays"), Note("viewer_words")
        for note, words in zip(told, (REPLAYS, f"{sentence(engine_missing())}."), strict=True):
            note.say(words)
        self.setLayout(column(Heading(tr("Viewer")), *told, None, margins=(12, 0, 12, 12), spacing=8))
