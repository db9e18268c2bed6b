"""In German: Qt's own words are German too, and what settings keep and keys ask for is what it is in English."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app import storage
from app.preferences import LANGUAGE
from tests.conftest import NewData

PROGRAM = """
import json
import app.window
from app.language import spoken
from app.window.start.application import make_application
application = make_application()
make_application()
from PySide6.QtCore import QTranslator
from PySide6.QtGui import QKeySequence
from app.window.page_name import PAGES
print(json.dumps({
    "spoken": spoken(),
    "translators": len(application.findChildren(QTranslator)),
    "cancel": application.translate("QPlatformTheme", "Cancel"),
    "keys": [page.native_keys for page in PAGES],
    "again": QKeySequence(PAGES[0].keys).toString(),
    "names": [page.name for page in PAGES],
}))
"""


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_data: NewData) -> None:
    monkeypatch.setenv("BATCHSCOPE_DATA", str(new_data(tmp_path / "data")))


@pytest.mark.parametrize(("chosen", "cancel", "first"), [("de", "Abbrechen", "Strg+1"), ("en", "Cancel", "Ctrl+1")])
def test_qt_speaks_the_window_s_language(chosen: str, cancel: str, first: str, own_settings: None) -> None:
    storage.settings().setValue(LANGUAGE.key, chosen)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["spoken"], told["cancel"], told["keys"][0]) == (chosen, cancel, first)
    assert told["translators"] == (chosen != "en")
    assert told["again"] == "Ctrl+1"
    assert told["names"] == ["Play", "Chat", "Compare", "Runs", "Models"]
