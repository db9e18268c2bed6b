"""A form: fields that are declared once, each the name of a value of a spec, the control that shows it, and its row."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal, SignalInstance
from PySide6.QtWidgets import QLineEdit

from app.ui.controls import Amount, DropDown, Number, SliderValue, Switch
from app.ui.forms.adapters import AdapterChoice
from app.ui.labels import Row

Control = Amount | DropDown | Number | SliderValue | Switch | QLineEdit
KEPT = object()


@dataclass(frozen=True, slots=True)
class Field:
    """`read` and `write` turn the control's value into the spec's and back. `modes`: those that it matters to; in the
    others its value is `idle`, and not shown, or it stays as it is."""

    name: str
    text: str
    control: Control
    tip: str = ""
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value
    modes: Collection[str] | None = None
    idle: object = KEPT

    def get(self) -> Any:
        return self.read(_bound(self.control)[0]())

    def set(self, value: Any) -> None:
        _bound(self.control)[1](self.write(value))

    def counts(self, mode: str) -> bool:
        """Whether its value matters to the mode."""
        return self.modes is None or mode in self.modes


class Form(QObject):
    """The fields of one spec; `rows` by their names, to be laid out."""

    edited = Signal()

    def __init__(self, fields: Iterable[Field], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.fields = {field.name: field for field in fields}
        self.rows = {field.name: Row(field.text, field.control, field.tip) for field in self.fields.values()}
        for field in self.fields.values():
            _bound(field.control)[2].connect(self.edited)

    def __getitem__(self, name: str) -> Field:
        return self.fields[name]

    def values(self, mode: str = "") -> dict[str, Any]:
        """By the names of the spec. With a mode, what does not matter to it is idle."""
        return {
            name: field.get() if not mode or field.counts(mode) or field.idle is KEPT else field.idle
            for name, field in self.fields.items()
        }

    def show(self, spec: object, mode: str = "") -> None:
        """Shows a spec's values, and tells nobody."""
        blocked = self.blockSignals(True)
        for name, field in self.fields.items():
            if not mode or field.counts(mode) or field.idle is KEPT:
                field.set(getattr(spec, name))
        self.blockSignals(blocked)


def _bound(control: Control) -> tuple[Callable[[], object], Callable[[Any], object], SignalInstance]:
    """How a control is read and written, and what tells that it was changed."""
    match control:
        case AdapterChoice():
            return control.value, control.setValue, control.valueChanged
        case DropDown():
            return control.currentData, control.set_value, control.currentIndexChanged
        case SliderValue():
            return control.value, control.set_value, control.value_changed
        case Switch():
            return control.isChecked, control.setChecked, control.toggled
        case QLineEdit():
            return control.text, control.setText, control.textChanged
        case _:
            return control.value, control.setValue, control.valueChanged
