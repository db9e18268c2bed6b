"""Plays the demo model and draws the README's tour: each panel that looks inside, at a moment of a real run.

    python packaging/tour_pictures.py [FOLDER] [--light]

The runs themselves stay beside the pictures, to be opened in the window.
"""

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


from app.run_pictures import RunPictures
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission, Trace, load_workload, save_trace

CHUNKED = EngineConfig(mode="chunked", max_running=16, token_budget=128, prefix_caching=True)
TOKENS = 16 * 120  # of the small pool


@dataclass(frozen=True)
class Scene:
    """A run, the moment of it as a share of its length, and what is drawn then: panel names, "inside" or
    "transcript"."""

    name: str
    workload: str
    count: int
    config: EngineConfig
    at: float
    pictures: tuple[str, ...]
    request: int = -1
    small_pool: bool = False


SCENES = (
    Scene("inside", "long-prompt", 32, CHUNKED, 0.45, ("inside", "step", "roofline"), small_pool=True),
    Scene("prefixes", "shared-system-prompt", 40, replace(CHUNKED, mode="continuous"), 0.5, ("kv_map",), 12, True),
    Scene("stalls", "long-prompt", 24, EngineConfig(max_running=12), 0.35, ("timeline",)),
    Scene("waste", "mixed-lengths", 40, EngineConfig(max_running=16), 0.6, ("memory", "machine"), small_pool=True),
    Scene("strips", "mixed-lengths", 24, EngineConfig(mode="static", max_running=8), 0.5, ("kv_map",)),
)


def play(engine: Engine, scene: Scene) -> Trace:
    """The scene's workload, and one prompt whose alternatives are recorded."""
    bytes_a_token = engine.card.kv_token_bytes
    config = replace(scene.config, kv_memory=TOKENS * bytes_a_token) if scene.small_pool else scene.config
    trace = engine.begin(config)
    arrivals = load_workload(scene.workload, count=scene.count).arrivals
    told = SamplingParams(max_tokens=120, temperature=0.9, seed=3, logprobs=5)
    prompts = [Submission(a.prompt, a.params, label=a.label) for a in arrivals]
    streams = engine.submit_many([*prompts, Submission("Tell me a story about a fox and a lantern.", told)])
    for stream in streams:
        stream.results()
    return trace


def draw(scene: Scene, trace: Trace, folder: Path, light: bool) -> None:
    with RunPictures(trace, light=light, scale=1.5) as pictures:
        page, scope = pictures.window.page, pictures.scope
        page.see_inside()
        scope.catch_up()
        pictures.show(scene.at * (scope.end - scope.origin), scene.request)
        ending = "-light" if light else ""
        for name in scene.pictures:
            path = folder / f"{scene.name}-{name}{ending}.png"
            if name == "inside":
                pictures.whole(path)
            else:
                pictures.panel(name, path)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("tour"))
    options.add_argument("--light", action="store_true")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with Engine(ModelSpec("demo"), CHUNKED) as engine:
        for scene in SCENES:
            trace = play(engine, scene)
            save_trace(trace, given.folder / f"{scene.name}.bsrun")
            draw(scene, trace, given.folder, given.light)


if __name__ == "__main__":
    main()
