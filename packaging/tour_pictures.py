"""Plays the demo model and draws the README's tour: each panel that looks inside, at a moment of a real run.

    python packaging/tour_pictures.py [FOLDER] [--light] [--only SCENE ...]

The runs themselves stay beside the pictures, to be opened in the window.
"""

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QSize

import resources
from app.inside.attention.history import Seen
from app.inside.attention.panel import AttentionPanel
from app.inside.panel import InsightPanel
from app.inside.roofline.elsewhere import BESIDE
from app.playback.scope import Scope
from app.window.offscreen.pictures import RunPictures
from engine import Engine, EngineConfig, ModelSpec, Parallel, SamplingParams, load_trace, load_workload, save_trace
from engine.trace import Kind
from engine.workloads import Arrival

CHUNKED = EngineConfig(mode="chunked", max_running=16, token_budget=128, prefix_caching=True)
SMALL = 16 * 120  # tokens of the small pool
TOLD = SamplingParams(max_tokens=120, temperature=0.9, seed=3, logprobs=5)
STORY = Arrival(0.0, [{"role": "user", "content": "Tell me a story about a fox and a lantern."}], TOLD)
DEMO, MIXTURE = ModelSpec("demo"), ModelSpec("demo-moe")
SHARED_OUT = replace(MIXTURE, parallel=Parallel(2, experts=True))
WORKLOADS = resources.path("scenes") / "workloads"
TELLING, ENDLESS = str(WORKLOADS / "telling.jsonl"), str(WORKLOADS / "endless.jsonl")
WIDE, LOW = QSize(1200, 400), QSize(900, 330)


@dataclass(frozen=True)
class Scene:
    """A run, the moment of it as a share of its length, and what is drawn then: names of panels with their sizes,
    "window" or "transcript". `mixed`: at the next step in which a prompt's large chunk goes with decodes. `selects`:
    the request of the step's last row is selected. `beams`: so many for each prompt."""

    name: str
    workload: str
    config: EngineConfig
    at: float
    pictures: tuple[tuple[str, QSize], ...]
    count: int | None = None
    small_pool: bool = False
    mixed: bool = False
    selects: bool = False
    beams: int = 1
    token: int = 12  # whose card is on the transcript's picture
    beside: str = ""  # the device that the roofline has beside this machine
    step: int = -1  # after which it is drawn, in place of `at`
    seen: Seen = Seen()  # the head that attention is shown of
    watched: bool = False  # all tell what they attend to
    model: ModelSpec = DEMO


CHUNKS = (("window", WIDE), ("transcript", WIDE))
KERNELS = (("step", QSize(1200, 420)), ("roofline", QSize(900, 420)))
WASTE = (("memory", QSize(1000, 320)), ("machine", QSize(520, 320)))
MAP = (("kv_map", LOW),)
CONTINUOUS, PREFIXES = EngineConfig(max_running=16), replace(CHUNKED, mode="continuous")
FORGETS = EngineConfig(max_running=4, kv_window=64)
STATIC = EngineConfig(mode="static", max_running=8)
DRAFTS = EngineConfig(max_running=16, speculation="draft", speculated=4)
SCENES = (
    Scene("chunked", "long-prompt", CHUNKED, 0.4, CHUNKS, mixed=True),
    Scene("kernels", "mixed-lengths", CHUNKED, 0.2, KERNELS, 24, mixed=True),
    Scene("beside", "mixed-lengths", CONTINUOUS, 0.6, (("roofline", QSize(900, 460)),), 24, beside="H100"),
    Scene("stalls", "long-prompt", CONTINUOUS, 0.55, (("timeline", WIDE),)),
    Scene("prefixes", "shared-system-prompt", PREFIXES, 0.5, MAP, 40, small_pool=True, selects=True),
    Scene("strips", "mixed-lengths", STATIC, 0.04, MAP, 24),
    Scene("waste", "mixed-lengths", CONTINUOUS, 0.4, WASTE, 60, small_pool=True),
    Scene("drafts", "burst", DRAFTS, 0.6, (("window", WIDE), ("step", QSize(1000, 330))), 7),
    Scene("beams", "burst", CONTINUOUS, 0.42, (("beams", QSize(1000, 240)), ("kv_map", LOW)), 2, True, False, True, 4),
    Scene("experts", "mixed-lengths", CONTINUOUS, 0.6, (("experts", QSize(1000, 420)),), 24, model=MIXTURE),
    Scene("attention", TELLING, CHUNKED, 0.0, (("attention", QSize(1000, 380)),), step=19),
    Scene("head", TELLING, CHUNKED, 1.0, (("attention", QSize(1000, 380)),), seen=Seen(3, 1)),
    Scene("forgetting", ENDLESS, FORGETS, 0.9, (("attention", QSize(1000, 380)), *MAP), selects=True, watched=True),
    Scene("ranks", "mixed-lengths", CONTINUOUS, 0.2, (("experts", QSize(1000, 330)),), 24, model=SHARED_OUT),
    Scene("json", "json-stories", CONTINUOUS, 1.0, (("transcript", WIDE),), 12, token=19),
    Scene("thoughts", "thoughts", EngineConfig(max_running=12), 0.5, (("window", WIDE),), 12),
)


def play(engine: Engine, scene: Scene, path: Path) -> None:
    """The scene's workload, and one prompt whose alternatives are recorded."""
    memory = SMALL * engine.card.kv_token_bytes if scene.small_pool else None
    workload = load_workload(scene.workload, count=scene.count)
    held = workload.arrivals[0].params.json_schema  # then the prompt is held to it too
    story = replace(STORY, params=STORY.params.with_(json_schema=held))
    asked: dict[str, Any] = {"beam_width": scene.beams} | ({"attention": True} if scene.watched else {})
    told = (replace(each, params=each.params.with_(**asked)) for each in (story, *workload.arrivals))
    run = engine.run(replace(workload, arrivals=tuple(told)), replace(scene.config, kv_memory=memory))
    save_trace(run.result(), path)


def _mixed(scope: Scope, place: int) -> int:
    """The next step in which decodes ride along with a chunk of half the largest one's tokens, or more."""
    both = {Kind.PREFILL, Kind.DECODE}
    tokens = {
        at: int(step.count.sum()) for at in range(scope.steps) if both <= set((step := scope.step_at(at)).kind.tolist())
    }
    large = [at for at in tokens if 2 * tokens[at] >= max(tokens.values())]
    return next((at for at in large if at >= place), large[-1])


def draw(scene: Scene, folder: Path, light: bool) -> None:
    BESIDE.set(scene.beside)
    with RunPictures(load_trace(folder / f"{scene.name}.bsrun"), scene.name, light=light, scale=1.5) as pictures:
        page, scope = pictures.window.page, pictures.scope
        page.see_inside()
        scope.catch_up()
        place = max(0, scope.place_at(scope.origin + scene.at * (scope.end - scope.origin)))
        if scene.mixed:
            place = _mixed(scope, place)
        place = scene.step if scene.step >= 0 else place
        step = scope.step_at(place)
        request = int(step.request[-1]) if scene.selects else -1

        def choose(panel: InsightPanel) -> None:
            if isinstance(panel, AttentionPanel):
                panel.picture.chosen.emit(scene.seen)

        pictures.show(float(scope.step_ends[place]) - scope.origin, request)
        for name, size in scene.pictures:
            path = folder / f"tour-{scene.name}-{name}{'-light' if light else ''}.png"
            match name:
                case "window":
                    pictures.whole(path)
                case "transcript":
                    pictures.tokens(0, scene.token, path)
                case _:
                    pictures.panel(name, path, size, choose)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("tour"))
    options.add_argument("--only", nargs="+", metavar="SCENE", help="these scenes alone")
    options.add_argument("--light", action="store_true", help="the same runs in the light theme; plays none anew")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    scenes = [scene for scene in SCENES if scene.name in (given.only or [scene.name])]
    if not given.light:
        for model in dict.fromkeys(scene.model for scene in scenes):
            with Engine(model, CHUNKED) as engine:
                for scene in scenes:
                    if scene.model == model:
                        play(engine, scene, given.folder / f"{scene.name}.bsrun")
    for scene in scenes:
        draw(scene, given.folder, given.light)


if __name__ == "__main__":
    main()
