"""Draws the README's picture of a fleet that loses a replica: a real one, killed by the panel's button under streams.

python packaging/fleet_picture.py [FOLDER] [--light]
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.fleet import FleetSource
from app.ui.look import theme
from app.window.fleet import FleetWindow
from app.window.start.application import make_application
from engine import EngineConfig, ModelSpec, SamplingParams, Submission
from engine.remote import ServerAddress
from engine.serving import Server, ServingSettings, local_fleet

SIZE, REPLICAS, STREAMS = (1120, 640), 3, 20
CONFIG = EngineConfig(max_running=16, token_budget=512, kv_memory=40 << 20, prefix_caching=True)
STORY = "Tell me story {} about a fox and a kite."


def draw(folder: Path, light: bool) -> None:
    app = make_application()
    theme.set_theme("light" if light else "dark")
    with local_fleet(ModelSpec("demo"), CONFIG, REPLICAS, threads=1) as fleet:
        server, ready = Server(ServingSettings(port=0, kills=True)), threading.Event()
        serving = threading.Thread(target=server.run, args=(fleet, "demo", lambda _: ready.set()))
        serving.start()
        ready.wait(30)
        window = FleetWindow(FleetSource(ServerAddress(server.address)))
        window.resize(*SIZE)
        window.show()
        streams = []
        for i in range(STREAMS):
            params = SamplingParams(max_tokens=500 + 60 * (i % 7), seed=i, ignore_eos=True)
            prompt = [{"role": "user", "content": STORY.format(i)}]
            streams += fleet.submit_many([Submission(prompt, params)])
            turn(app, 0.05)
        victim = window.panel.cards[1]
        while min(len(stream.deltas) for stream in streams) < 120:
            turn(app, 0.02)
        victim.kill.click()
        while (state := window.panel.state) is None or not state.deaths:
            turn(app, 0.02)
        turn(app, 0.6)  # those that moved have said more since
        window.grab().save(str(folder / f"fleet{'-light' if light else ''}.png"))
        print(window.panel.summary.toolTip() or "drawn", [r.about["place"] for r in fleet.living])
        fleet.cancel()
        window.close()
        server.stop()
        serving.join()


def turn(app: QApplication, seconds: float) -> None:
    """The window lives for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        app.processEvents()
        time.sleep(0.005)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("packaging/screenshots"))
    options.add_argument("--light", action="store_true")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"BATCHSCOPE_DATA": f"{scratch}/data", "HOME": scratch}
        draw(given.folder, given.light)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
