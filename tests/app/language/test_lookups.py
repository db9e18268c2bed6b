"""Words are looked up where translators' tools find them, and not before a language is chosen."""

import ast
import subprocess
import sys
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


def test_every_word_that_is_looked_up_is_extracted() -> None:
    """What is called within an f-string is not."""
    said = [message.id for message in languages.template()]
    known = {*said, *(each[0] for each in said if isinstance(each, tuple))}
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tr", "trn"):
                texts = tuple(ast.literal_eval(each) for each in node.args[: 1 if node.func.id == "tr" else 2])
                wanted = texts[0] if len(texts) == 1 else texts
                assert not wanted or wanted in known, f"{path.relative_to(ROOT)}:{node.lineno}: {wanted}"


def test_what_the_command_line_imports_looks_nothing_up_as_it_is_imported() -> None:
    """The window chooses the language, later."""
    done = subprocess.run([sys.executable, "-c", COMMAND_LINE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
