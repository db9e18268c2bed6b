"""Draws the README's picture of prompt compression: a story and a question, measured by the demo model.

python packaging/compression_picture.py [FOLDER] [--light]
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from random import Random

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync

from app.compression.dialog import CompressionDialog
from app.ui.look import theme
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig, ModelSpec
from engine.workloads import counter_for
from engine.workloads.texts import text_of

SIZE, TOKENS, SEED = (1280, 720), 260, 3
QUESTION = "\n\nTell me a story about a fox and a kite."
PATIENCE = 60.0  # seconds


async def draw(path: Path, light: bool) -> None:
    async with unattended_window(SIZE) as window:
        window.page.complete()
        window.fill_menu()
        theme.set_theme("light" if light else "dark")
        await window.session.load(ModelSpec("demo"), EngineConfig())
        window.page.composer.prompt.setPlainText(text_of(TOKENS, counter_for(), Random(SEED)) + QUESTION)
        window.page.composer.compress.click()
        dialog = window.findChild(CompressionDialog)
        assert isinstance(dialog, CompressionDialog)
        for deed in (lambda: None, dialog.measure.click):
            deed()
            if not await until(lambda: not dialog.work.running, PATIENCE):
                raise TimeoutError
        await asyncio.sleep(0.3)
        dialog.grab().save(str(path))
        dialog.reject()
        await asyncio.sleep(0.1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("packaging/screenshots"))
    options.add_argument("--light", action="store_true")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / f"tour-compression{'-light' if given.light else ''}.png"
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["BATCHSCOPE_DATA"] = scratch
        make_application()
        qasync.run(draw(path, given.light))


if __name__ == "__main__":
    main()
