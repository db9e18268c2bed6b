"""‹ 2/3 ›: which of a turn's variants is shown, and the way to the others."""

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import named, row


class VariantSwitch(QWidget):
    """Takes no room where there is one."""

    asked = Signal(int)  # by how many places

    def __init__(self) -> None:
        super().__init__()
        named(self, "variants")
        quiet, before, after = partial(button, role="quiet"), tr("Variant before"), tr("Variant after")
        self.back = quiet("variant_before", "‹", lambda: self.asked.emit(-1), said=before, tip="←")
        self.on = quiet("variant_after", "›", lambda: self.asked.emit(1), said=after, tip="→")
        self.place = label("", "note", "variant_place")
        self.setLayout(row(self.back, self.place, self.on, spacing=0))
        self.hide()

    def show_place(self, place: int, count: int) -> None:
        """`place` counts from 0."""
        self.place.setText(f"{place + 1}/{count}")
        self.place.setAccessibleName(tr("Variant {i} of {all}", i=place + 1, all=count))
        self.back.setEnabled(place > 0)
        self.on.setEnabled(place < count - 1)
        self.setVisible(count > 1)
