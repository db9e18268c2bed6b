"""Preferences that act on the whole process: theme, zoom, motion, the streams' font, the hub."""

import os

from PySide6.QtCore import QObject

from app import preferences
from app.preferences import HUB_FOLDER, HUB_OFFLINE, MOTION, STREAM_FONT, THEME, ZOOM
from app.ui.look import motion, theme
from engine.jobs import assume

CACHE, OFFLINE = "HF_HUB_CACHE", "HF_HUB_OFFLINE"
GIVEN = {name: os.environ[name] for name in (CACHE, OFFLINE) if name in os.environ}
"""What the process was started with: nothing that is chosen here is stronger."""


def apply_hub() -> None:
    """To this process, and to the children that load models."""
    wanted: dict[str, str | None] = {CACHE: HUB_FOLDER.value or None, OFFLINE: "1" if HUB_OFFLINE.value else None}
    changed = {name: value for name, value in wanted.items() if name not in GIVEN and os.environ.get(name) != value}
    if changed:
        assume(changed)


class Applied(QObject):
    """Applies them now, and each when it changes; what changes theme or zoom by another way is remembered."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        preferences.changes.changed.connect(self._on_changed)
        for each in (THEME, ZOOM, MOTION, STREAM_FONT):
            self._on_changed(each.key)
        apply_hub()

    def _on_changed(self, key: str) -> None:
        match key:
            case THEME.key:
                theme.set_theme(THEME.value)
            case ZOOM.key:
                theme.set_zoom(ZOOM.value)
            case MOTION.key:
                motion.set_motion(MOTION.value)
            case STREAM_FONT.key:
                theme.set_stream_font(STREAM_FONT.value)
            case HUB_FOLDER.key | HUB_OFFLINE.key:
                apply_hub()
