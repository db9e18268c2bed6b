"""A small sheet with the tags of a run, to be edited."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.ui.controls import button, line_edit
from app.ui.labels import Heading, label
from app.ui.layout.boxes import row
from app.ui.sheets.popover import Popover

MOST_KNOWN = 12  # tags that are offered


class TagSheet(Popover):
    """`taken` comes with Enter or the button; Esc leaves everything as it is."""

    taken = Signal(str)

    def __init__(self, parent: QWidget, tags: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(parent, "tag_sheet", tr("Tags of the run"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.field = line_edit("tag_field", tr("Tags, with commas between them"), tr("talk, paper"))
        self.field.setText(", ".join(tags))
        self.column.addWidget(Heading(tr("Tags")))
        self.column.addWidget(self.field)
        others = [tag for tag in known if tag not in tags][:MOST_KNOWN]
        if others:
            words = label(tr("Used before: {tags}", tags=", ".join(others)), "note", "tag_known")
            words.setWordWrap(True)
            self.column.addWidget(words)
        done = button("tag_done", tr("Set the tags"), self._on_taken, role="primary")
        self.column.addLayout(row(None, done))
        self.field.returnPressed.connect(self._on_taken)

    def open_below(self, control: QWidget) -> None:
        super().open_below(control)
        self.field.setFocus()
        self.field.selectAll()

    def _on_taken(self) -> None:
        self.taken.emit(self.field.text())
        self.close()
