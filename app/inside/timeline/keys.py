"""The keys of a timeline: what it hears, and what the list of keys and its description tell of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QKeyCombination, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence


@dataclass(frozen=True, slots=True)
class Key:
    """What it does in words, as a list has them and as they are `said` in a sentence; any of its `keys`, and what each
    of them does to a timeline. A gesture of the mouse has no act: the widget hears it itself."""

    words: str
    said: str
    keys: tuple[str, ...]
    acts: tuple[Callable[[Any], object], ...] = ()

    @property
    def titles(self) -> tuple[str, ...]:
        """What the keyboard calls its keys."""
        native = QKeySequence.SequenceFormat.NativeText
        return tuple(QKeySequence(name).toString(native) for name in self.keys) if self.acts else self.keys


def heard(keys: Sequence[Key], event: QKeyEvent) -> Callable[[Any], object] | None:
    """What a pressed key does; None where it is nobody's."""
    modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
    pressed = QKeySequence(QKeyCombination(modifiers, Qt.Key(event.key()))).toString()
    for key in keys:
        for name, act in zip(key.keys, key.acts):
            if name == pressed:
                return act
    return None


def told(keys: Sequence[Key]) -> str:
    """ "A, D: earlier, later. W, S: closer, wider."."""
    return " ".join(f"{', '.join(key.titles)}: {key.said}." for key in keys)
