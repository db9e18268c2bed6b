"""The viewer's window as a person goes through it; what was seen is printed as JSON."""

import asyncio
import json
import sys
from pathlib import Path

import qasync

from app.session.session import SessionState
from app.stage.scene_file import RUNS, shipped_tour
from app.window.main_window import COMPARE, MODELS, MainWindow
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig, ModelSpec

LIMIT = 30.0  # seconds


async def seen(window: MainWindow) -> dict[str, object]:
    page, bridge, recordings = window.page, window.bridge, shipped_tour() / RUNS
    told: dict[str, object] = {}
    window.start(ModelSpec("demo"), EngineConfig())
    await until(lambda: "live" in page.docks and window.banner.isVisible(), LIMIT)
    told["banner"] = f"{window.banner.title.text()}: {window.banner.text.text()}"
    told["composer"] = page.composer.isVisible()
    models = window.top_bar.pages.button(MODELS)
    told["models"] = models.isEnabled(), models.toolTip()
    failed: list[str] = []
    window.session.load_failed.connect(failed.append)
    await window.session.load(ModelSpec("demo"))
    told["load"] = failed, window.session.state is SessionState.EMPTY
    window.open_path(recordings / "05-static.bsrun")
    told["run"] = await until(lambda: len(bridge.requests) == 8 and not bridge.behind, LIMIT)
    window.open_path(recordings / "01-cache.bsrace")
    await until(lambda: window.compare is not None, LIMIT)
    compare = window.compare
    assert compare is not None
    told["race"] = await until(lambda: compare.race.report is not None, LIMIT)
    told["race again"] = compare.setup.race.isEnabled(), compare.race_action.isEnabled(), compare.setup.race.toolTip()
    compare.start()
    await until(compare.notice.text.isVisible, LIMIT)
    told["refused"] = compare.notice.text.text()
    window.touring.ask(3)
    tour = window.touring.tour
    assert tour is not None
    told["scene"] = await until(lambda: bool(tour.due), LIMIT)
    told["caption"] = window.touring.bar.status.text()
    window.touring.bar.try_button.click()
    told["tried"] = tour.trying, window.touring.bar.pointed.text()
    window.touring.leave()
    told["left"] = await until(lambda: window.touring.tour is None, LIMIT)
    told["page"] = window.pages.currentIndex() == COMPARE
    told["loaded"] = sorted({"torch", "transformers"} & {name for name, module in sys.modules.items() if module})
    return told


async def live() -> None:
    async with unattended_window((1280, 720)) as window:
        Path(sys.argv[1]).write_text(json.dumps(await seen(window)))


loop = qasync.QEventLoop(make_application())
with asyncio.Runner(loop_factory=lambda: loop) as runner:
    runner.run(live())
