"""What the dialog says of a preference, and the control that shows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.preferences import Preference
from app.ui.controls import DropDown, Number, Switch

Choices = Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several; `offered` is asked when the dialog opens."""

    offered: Callable[[], Choices]


@dataclass(frozen=True, slots=True)
class OnOff:
    pass


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; `least` is what the lowest is called."""

    low: int
    high: int
    least: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; `default` is the one where none is chosen."""

    default: Callable[[], str]


Kind = Choice | OnOff | Whole | Folder
Control = DropDown | Switch | Number


@dataclass(frozen=True)
class Setting:
    """`note` says what it does where the title does not; `given` why it cannot be changed here, "" where it can."""

    preference: Preference[Any]
    title: str
    kind: Kind
    note: str = ""
    given: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    settings: Sequence[Setting] = field(default_factory=tuple)
