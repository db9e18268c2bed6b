"""Words are looked up where translators' tools find them, and not before a language is chosen."""

import subprocess
import sys
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "packaging"))
import languages  # noqa: E402

COMMAND_LINE = """
import importlib, app.language
def early(*words, **values): raise AssertionError(f"looked up at import: {words}")
app.language.tr = app.language.trn = early
import app.__main__
for name in app.__main__.COMMANDS: importlib.import_module(f"app.cli.{name}")
"""


def test_words_are_extracted_wherever_they_are_looked_up() -> None:
    source = b"""f"{tr('Copy')} {trn('{count} row', '{count} rows', rows)}"; TITLE = tr("A long " "title")"""
    found = {(name, *texts) for _, name, texts, _ in languages.said_in(BytesIO(source), ("tr", "trn"), (), {})}
    assert found == {("tr", "Copy"), ("trn", "{count} row", "{count} rows"), ("tr", "A long title")}


def test_what_the_command_line_imports_looks_nothing_up_as_it_is_imported() -> None:
    """The window chooses the language, later."""
    done = subprocess.run([sys.executable, "-c", COMMAND_LINE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
