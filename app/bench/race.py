"""What a race on the Compare page costs the window: frames while four lanes of 64 prompts are played."""

from typing import Any

from app.bench.frames import FrameMeter
from app.compare.choice import LaneChoice, RaceChoice
from app.session.lessee import Phase
from app.window.main_window import COMPARE, PLAY, MainWindow
from app.window.start.application import until
from engine import EngineConfig, ModelSpec

LANES = ("static:8", "dynamic:8", "continuous-padded", "continuous")


async def race_frames(window: MainWindow, meter: FrameMeter, source: str, count: int = 0) -> dict[str, Any]:
    """Milliseconds a frame from the first lane's first prompt to the end. `count` prompts; 0: all 64.

    Raises RuntimeError when the race does not come to its end.
    """
    session, problems = window.session, list[str]()
    session.load_failed.connect(problems.append)
    if not await session.load(ModelSpec(source), EngineConfig()):
        raise RuntimeError(f"the model for the race was not loaded: {problems}")
    window.show_page(COMPARE)
    page = window.compare
    assert page is not None
    race = page.race
    race.refused.connect(lambda words, requests_run: problems.append(words))
    page.setup.take(RaceChoice(lanes=tuple(map(LaneChoice.parse, LANES)), count=count))
    page.start()
    await until(lambda: bool(problems) or race.clock > 0.0)
    meter.start()
    await until(lambda: bool(problems) or race.phase is Phase.OVER)
    frames = meter.stop()
    problems += [lane.error for lane in race.lanes if lane.error]
    if problems:
        raise RuntimeError(f"the race was not run: {problems[0]}")
    window.show_page(PLAY)
    await session.unload()
    return {**frames, "lanes": list(LANES), "prompts": race.lanes[0].total}
