"""What is broken, and what then reads it as the product does."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import resources
from tests.hardening.mutators import break_folder, break_race, break_run, break_workload
from tests.hardening.served import answer_body, break_body, make_bodies


@dataclass(frozen=True, slots=True)
class Target:
    """`make` writes whole inputs into a folder, once; `spoil` breaks a copy of one; `read` takes it or raises
    InvalidInput within `seconds`; that takes an `engine`, or none."""

    make: Callable[[Path], None]
    spoil: Callable[[Path, Random], None]
    read: Callable[[Path], object]
    seconds: float = 5.0
    engine: bool = False


def _runs(folder: Path) -> None:
    from engine.bench.trace.synthetic import made_up_hour
    from engine.config.sampling_params import SamplingParams
    from engine.core.engine import Engine
    from engine.trace import Trace, save_trace
    from engine.workloads import demo_workload

    save_trace(Trace(made_up_hour(120, 8)), folder / "made-up.bsrun")
    from engine import EngineConfig, ModelSpec

    for mode in ("chunked", "static"):
        config = EngineConfig(mode, 4, 64, prefix_caching=mode == "chunked", longest_wait=0.01)
        with Engine(ModelSpec("demo-draft"), config, threads=1) as engine:
            run = engine.run(demo_workload(12, SamplingParams(max_tokens=12, temperature=0.7, logprobs=2)), config)
            save_trace(run.result(), folder / f"{mode}.bsrun")


def _read_run(path: Path) -> None:
    """As the window and `replay` do before they draw."""
    from engine.trace import load_trace, measure

    trace = load_trace(path)
    measure(trace)
    for moment in (0.0, trace.duration / 2, trace.end):
        for view in trace.requests.values():
            view.at(moment)


def _draw_run(path: Path) -> None:
    """As the window does: every panel."""
    from app.window.offscreen.pictures import run_pictures

    with tempfile.TemporaryDirectory() as folder:
        run_pictures(path, Path(folder))


def _races(folder: Path) -> None:
    from engine import Lane, Trace
    from engine.bench.trace.synthetic import made_up_hour
    from engine.compare import LaneRun, RaceResult, save_race
    from engine.workloads import demo_workload

    runs = tuple(LaneRun(lane, 0, Trace(made_up_hour(40, 4)), others=0.2) for lane in range(2))
    save_race(RaceResult(demo_workload(4), (Lane(), Lane()), runs, 1 << 20), folder / "made-up.bsrace", "{}")


def _read_race(path: Path) -> None:
    """As the Compare page does, up to the table."""
    from engine.compare import compare_race, load_race

    result, _ = load_race(path)
    compare_race(result).text()


def _models(folder: Path) -> None:
    from tests.engine.tiny_models import TINY_MODELS, save_tiny_model

    for name in ("llama", "qwen2"):
        save_tiny_model(TINY_MODELS[name], folder / name)
    shutil.copytree(resources.path("models/stories-5m-awq"), folder / "awq")
    for place in folder.iterdir():
        (place / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: a/b\n---\n# A model\n")


def _read_model(path: Path) -> None:
    """As the catalogue and the fit table do."""
    from engine.checkpoints import folder_model, inspect_model
    from engine.checkpoints.inspect import fault, tokenizer_of
    from engine.memory import DeviceMemory, fits

    folder_model(path)
    fault(path)
    tokenizer_of(path)
    fits(inspect_model(str(path)), DeviceMemory("cpu", 8 << 30, 8 << 30))


def _load_model(path: Path) -> None:
    """As a load does, to a first answer."""
    from engine.config.sampling_params import SamplingParams
    from engine.config.specs import EngineConfig, ModelSpec
    from engine.core.engine import Engine

    config = EngineConfig(max_running=2, token_budget=64, kv_memory=1 << 20)
    with Engine(ModelSpec(str(path), device="cpu"), config, threads=1) as engine:
        engine.submit("Once", SamplingParams(max_tokens=2)).result(timeout=4)


def _workloads(folder: Path) -> None:
    for recipe in resources.path("workloads").glob("*.toml"):
        shutil.copy(recipe, folder)
    lines = [{"prompt": "Once"}, {"messages": [{"role": "user", "content": "Hi"}], "time": 1.5, "label": "a"}]
    lines += [{"text": "There", "max_tokens": 5, "stop": ["."]}, {"token_ids": [1, 2, 3], "temperature": 0}]
    (folder / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    turns = [
        {"from": "human", "value": "Tell me a long story of a fox"},
        {"from": "gpt", "value": "Once there was one"},
    ]
    (folder / "share.json").write_text(json.dumps([{"id": "a", "conversations": turns}] * 3))
    (folder / "plain.txt").write_text("Once there was a fox\nand a kite\n")


def _read_workload(path: Path) -> None:
    from engine.workloads import load_workload

    load_workload(path)


TARGETS = {
    "runs": Target(_runs, break_run, _read_run),
    "views": Target(_runs, break_run, _draw_run, 40.0),
    "races": Target(_races, break_race, _read_race),
    "models": Target(_models, break_folder, _read_model),
    "loads": Target(_models, break_folder, _load_model, 20.0, engine=True),
    "workloads": Target(_workloads, break_workload, _read_workload),
    "bodies": Target(make_bodies, break_body, answer_body, 20.0, engine=True),
}
