"""Whatever the file of settings holds, the window opens whole."""

import pytest
from PySide6.QtCore import QByteArray

from app import preferences, storage
from app.window.main_window import COMPARE, MODELS, PLAY, RUNS, MainWindow

KEYS = (
    *("composer/chat", "composer/folder", "composer/system", "compare/folder", "compare/race", "export/folder"),
    *("model/folder", "model/request length", "models/downloads", "models/folders", "models/recent"),
    *("play/inside", "play/layout", "play/request columns", "play/stream layout", "quality/folder"),
    *("runs/limit", "sampling/more", "sampling/params", "timeline/axis", "timeline/legend", "timeline/stall_ms"),
    *("transcript/tokens", "window/geometry", "window/page"),
    *(each.key for each in preferences.ALL),
)
TEXTS = ("", "nan", "1e999", "-1", "true", "\0", "x" * 5_000, "[]", "{}", "[[[", '["a", 1, null]', '[{"x": 1}]', '"x"')
VALUES = (*TEXTS, 5, [1, 2], QByteArray(), QByteArray(b"\0\1junk"))


@pytest.mark.parametrize("turn", range(0, len(VALUES), 3))
def test_whatever_was_kept_the_window_opens_whole(request: pytest.FixtureRequest, turn: int) -> None:
    """Six windows, each with other values for each of its settings: every value is met by a third of them."""
    for place, key in enumerate(KEYS):
        storage.settings().setValue(key, VALUES[(place + turn) % len(VALUES)])
    window: MainWindow = request.getfixturevalue("window")
    for page in (COMPARE, RUNS, MODELS, PLAY):
        window.show_page(page)
    window.page.see_inside()
    assert len(window.page.docks) == 13
    assert window.page.composer.send_button.isVisible()
