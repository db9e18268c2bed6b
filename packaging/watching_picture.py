"""Draws the picture of the window watching a server: two programs ask it, each with a key of its own.

python packaging/watching_picture.py [FILE]
"""

import argparse
import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from openai import AsyncOpenAI
from PIL import Image

from app.play.setup.model import SERVER
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig, EngineProcess, ModelSpec
from engine.remote import ServerAddress
from engine.serving import KeyFile, Server, ServingSettings, made_key

SIZE, PATIENCE, COLORS = (1600, 1000), 30.0, 255
HALF_WAY = 200  # steps of the run
ASKED = {"notebook": "a fox and a kite", "study app": "a crab and a lantern"}
CONFIG = EngineConfig("chunked", max_running=16, token_budget=256, kv_memory=12 << 20, prefix_caching=True)
OUT = Path(__file__).parent / "screenshots" / "watching.png"


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server's address, and keys by their names."""
    made = {name: made_key(name) for name in ("desk", *ASKED)}
    for _, kept in made.values():
        KeyFile(folder / "keys.json").add(kept)
    settings = ServingSettings(port=0, keys=folder / "keys.json", controllers=("desk",))
    server, ready = Server(settings), threading.Event()
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as engine:
        thread = threading.Thread(target=server.run, args=(engine, "demo", lambda _: ready.set()))
        thread.start()
        try:
            ready.wait(PATIENCE)
            yield server.address, {name: told for name, (told, _) in made.items()}
        finally:
            server.stop()
            thread.join()


async def ask(address: str, key: str, about: str, seed: int) -> None:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as client:
        story = [{"role": "user", "content": f"Tell me a story about {about}."}]
        await client.chat.completions.create(
            model="demo",
            messages=story,  # type: ignore[arg-type]
            max_tokens=120 + 60 * (seed % 5),
            temperature=0.8,
            seed=seed,
            extra_body={"ignore_eos": True},
        )


async def draw(path: Path, address: str, keys: dict[str, str]) -> None:
    async with unattended_window(SIZE) as window:
        window.start(None, EngineConfig(), server=ServerAddress(address, keys["desk"]))
        if not await until(lambda: window.session.ready and window.page.model.source.currentData() == SERVER, PATIENCE):
            raise TimeoutError
        asked = [ask(address, keys[name], about, 2 * i) for i in range(10) for name, about in ASKED.items()]
        asking = [asyncio.create_task(one) for one in asked]
        await until(lambda: len(window.bridge.trace.records.step_ends) > HALF_WAY, PATIENCE)
        picture = window.grab().toImage()
        await asyncio.gather(*asking)
        picture.save(str(path))
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", nargs="?", type=Path, default=OUT)
    path = options.parse_args().file
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BATCHSCOPE_DATA"] = folder
        make_application()
        with serving(Path(folder)) as (address, keys):
            qasync.run(draw(path, address, keys))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
