"""What a person chooses once: each a key of the settings, with its default, told when it changes."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from PySide6.QtCore import QLocale, QObject, Signal

from app import language, storage

V = TypeVar("V", bool, int, float, str)


def _whole_path(text: str) -> bool:
    return not text or (os.path.isabs(text) and "\0" not in text)


class Changes(QObject):
    changed = Signal(str)  # the key


changes = Changes()
ALL: "list[Preference]" = []


@dataclass(frozen=True, eq=False)
class Preference(Generic[V]):
    """`private`: its value says something of the person, and is in no report. `allows` tells which values can be."""

    key: str
    default: V
    private: bool = False
    allows: Callable[[V], bool] = field(default=lambda value: True)

    def __post_init__(self) -> None:
        ALL.append(self)

    @property
    def value(self) -> V:
        """What was chosen; the default where nothing was, or what cannot be."""
        kept = storage.settings().value(self.key)
        try:
            value = self._read(str(kept)) if kept is not None else self.default
            return value if self.allows(value) else self.default
        except (ValueError, OverflowError):
            return self.default

    def set(self, value: V) -> None:
        """Takes effect at once, and at every start from now on."""
        if value == self.value:
            return
        if value == self.default:
            storage.settings().remove(self.key)
        else:
            storage.settings().setValue(self.key, str(value).lower() if isinstance(value, bool) else value)
        changes.changed.emit(self.key)

    @property
    def changed(self) -> bool:
        return self.value != self.default

    def on_change(self, act: Callable[[], object], owner: QObject) -> None:
        """Calls it whenever this changes, for as long as the owner is there."""
        _Listener(self.key, act, owner)

    def _read(self, text: str) -> V:
        if isinstance(self.default, bool):
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        return type(self.default)(text)


class _Listener(QObject):
    def __init__(self, key: str, act: Callable[[], object], owner: QObject) -> None:
        super().__init__(owner)
        self._key, self._act = key, act
        changes.changed.connect(self._on_changed)

    def _on_changed(self, key: str) -> None:
        if key == self._key:
            self._act()


def values() -> dict[str, bool | int | float | str]:
    """What differs from the defaults."""
    return {each.key: each.value for each in ALL if each.changed}


def take(chosen: dict[str, bool | int | float | str]) -> None:
    """These values; all others are their defaults."""
    for each in ALL:
        each.set(chosen.get(each.key, each.default))


def told() -> Iterator[tuple[str, str]]:
    """What differs from the defaults, for a report."""
    yield from ((each.key, "chosen" if each.private else str(each.value)) for each in ALL if each.changed)


THEME = Preference("window/theme", "system", allows=("system", "dark", "light").__contains__)
ZOOM = Preference("window/zoom", 1.0, allows=lambda zoom: 0.5 <= zoom <= 4)
MOTION = Preference("window/motion", "system", allows=("system", "on", "off").__contains__)
LANGUAGE = Preference("window/language", "system")
STREAM_FONT = Preference("window/stream font", "")
FIRST_PAGE = Preference("window/first page", "last")
FIRST_MODEL = Preference("model/first", "demo", allows=("demo", "last", "none").__contains__)
SEND_KEY = Preference("composer/send key", "ctrl+enter", allows=("ctrl+enter", "enter").__contains__)
RUNS_FOLDER = Preference(storage.RUNS_FOLDER, "", private=True, allows=_whole_path)
RUNS_LIMIT = Preference("runs/limit", 0, allows=lambda size: size >= 0)
HUB_FOLDER = Preference("hub/folder", "", private=True, allows=_whole_path)
HUB_OFFLINE = Preference("hub/offline", False)
THREADS = Preference("engine/threads", 0, allows=lambda count: 0 <= count <= 1024)
IN_PROCESS = Preference("engine/in process", False)
KEEP_PROMPTS = Preference("composer/remember", True)
KEEP_LOG = Preference("log/file", True)


def choose_language() -> None:
    """The window's, from what was chosen, or from the desktop's."""
    language.speak(QLocale.system().uiLanguages() if LANGUAGE.value == "system" else [LANGUAGE.value])
