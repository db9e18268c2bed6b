"""A race on disk: one zip archive of the lanes' run files, and of how they belong together."""

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

from engine.compare.lane import Lane
from engine.compare.lane_run import LaneRun
from engine.compare.race import MOST_LANES, RaceResult
from engine.compare.remote import Server
from engine.config.checks import InvalidInput, shown, whole
from engine.config.sampling_params import MOST_SAMPLES, SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.jobs.progress import LoadCancelled
from engine.trace.bsrun import SUFFIX as RUN_SUFFIX
from engine.trace.bsrun import load, save
from engine.workloads.workload import Arrival, Suggestion, Workload

RACE_SUFFIX = ".bsrace"
FORMAT = 1
INDEX = "race.json"
LARGEST_INDEX = 256 << 20  # bytes
MOST_OF = {b"{": 1 << 20, b"[": 1 << 20, b",": 1 << 25}  # in an index: a page of "{},{},..." unpacks to gigabytes
MOST_RUNS = 1024
PACKED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED  # zipfile reads others too, and their errors are of no kind
_WRONG = ValueError, LookupError, TypeError, AttributeError, RecursionError  # what is read is not what is written


def save_race(result: RaceResult, path: Path, asked: str = "") -> None:
    """Writes a race with all its runs to `path`; what was there is replaced when that is done. `asked`: how it was
    asked for, in words of the caller's own, which `load_race` gives back. Raises InvalidInput."""
    index: dict[str, Any] = {"format": FORMAT, "asked": asked, "workload": asdict(result.workload), "runs": []}
    index["lanes"] = [asdict(lane) for lane in result.lanes]
    index |= {"kv_memory": result.kv_memory, "cancelled": result.cancelled}
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".race-") as folder, _private(half) as archive:
            for number, run in enumerate(result.lane_runs, 1):
                told = {name: getattr(run, name) for name in ("lane", "repeat", "error", "cancelled", "others")}
                index["runs"].append(told | {"file": ""})
                if run.trace is not None and len(run.trace.records):
                    index["runs"][-1]["file"] = f"{number}{RUN_SUFFIX}"
                    file = Path(folder) / f"{number}{RUN_SUFFIX}"
                    save(run.trace, file)
                    archive.write(file, file.name)
                    file.unlink()
            archive.writestr(INDEX, _bounded(json.dumps(index).encode()))
        half.replace(path)
    except OSError as error:
        raise InvalidInput(f"cannot write the race to {path}: {error}; choose another place") from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink()


@contextlib.contextmanager
def _private(path: Path) -> Iterator[zipfile.ZipFile]:
    """A new archive that only who made it may read."""
    path.touch(0o600)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        yield archive


def load_race(
    path: Path, progress: Callable[[int, int], None] | None = None, cancelled: Event | None = None
) -> tuple[RaceResult, str]:
    """The race in a file and what was `asked`. Raises InvalidInput when it is no such file, or holds what no race could
    have written. `progress` hears how many of its runs are read, and of how many; setting `cancelled` ends it with
    LoadCancelled."""
    if not path.is_file():
        raise InvalidInput(f"no race at {path}; choose a {RACE_SUFFIX} file")
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            return _read(archive, Path(folder), progress, cancelled)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ArithmeticError, *_WRONG) as error:
        raise InvalidInput(f"{path} cannot be read as a race of this version: {error}; run the race again") from error
    except RuntimeError as error:  # a way of packing, or a password, that we do not write
        raise InvalidInput(f"{path} is packed in another way than Batchscope does: {error}") from error


def _read(
    archive: zipfile.ZipFile, folder: Path, progress: Callable[[int, int], None] | None, cancelled: Event | None
) -> tuple[RaceResult, str]:
    index = json.loads(_bounded(archive.read(_part(archive, INDEX, LARGEST_INDEX))))
    if index["format"] != FORMAT:
        raise InvalidInput(f"format {shown(index['format'])}, this version reads {FORMAT}: update to open it")
    lanes, told = tuple(map(_lane, index["lanes"])), index["runs"]
    if not 1 <= len(lanes) <= MOST_LANES or len(told) > MOST_RUNS:
        raise InvalidInput(f"{len(lanes)} lanes with {len(told)} runs are no race")
    runs = []
    for done, each in enumerate(told):
        if progress is not None:
            progress(done, len(told))
        if cancelled is not None and cancelled.is_set():
            raise LoadCancelled("reading the race was cancelled")
        runs.append(_run(archive, folder, each, len(lanes), cancelled))
    workload, kv_memory = _workload(index["workload"]), index["kv_memory"]
    if not (kv_memory is None or (type(kv_memory) is int and kv_memory > 0)):
        raise InvalidInput(f"kv_memory={shown(kv_memory)} is no number of bytes")
    return RaceResult(workload, lanes, tuple(runs), kv_memory, bool(index["cancelled"])), str(index["asked"])


def _part(archive: zipfile.ZipFile, name: str, largest: int) -> zipfile.ZipInfo:
    part = archive.getinfo(name)
    if part.compress_type not in PACKED:
        raise InvalidInput(f"{name} is packed in another way than Batchscope does")
    if part.file_size > largest:
        raise InvalidInput(f"unpacking {name} takes {part.file_size:,} bytes; there is room for {largest:,}")
    return part


def _bounded(index: bytes) -> bytes:
    if len(index) > LARGEST_INDEX or any(index.count(each) > most for each, most in MOST_OF.items()):
        raise InvalidInput("it says more of itself than a file of a race may: race fewer prompts")
    return index


def _run(archive: zipfile.ZipFile, folder: Path, told: dict[str, Any], lanes: int, cancelled: Event | None) -> LaneRun:
    told = dict(told)
    name, trace = told.pop("file"), None
    if name:
        packed, file = _part(archive, name, shutil.disk_usage(folder).free), folder / f"run{RUN_SUFFIX}"
        with archive.open(packed) as source, file.open("wb") as target:
            while part := source.read(1 << 20):
                target.write(part)
                if cancelled is not None and cancelled.is_set():
                    raise LoadCancelled("reading the race was cancelled")
        trace = load(file, cancelled=cancelled)
        file.unlink()
    run = LaneRun(**told, trace=trace)
    if not (type(run.lane) is type(run.repeat) is int and 0 <= run.lane < lanes and 0 <= run.repeat < MOST_RUNS):
        raise InvalidInput(f"a run of lane {shown(run.lane)}, repeat {shown(run.repeat)}, and {lanes} lanes")
    if not (isinstance(run.error, str) and (run.others is None or 0 <= run.others <= 1)):
        raise InvalidInput(f"a run with error {shown(run.error)} and others {shown(run.others)}")
    return run


def _lane(values: dict[str, Any]) -> Lane:
    config, spec = EngineConfig(**values["config"]), ModelSpec(**values["spec"])
    server = values.get("server")
    beams = whole("beams", values.get("beams", 1), 1, MOST_SAMPLES)
    return Lane(config, spec, str(values["name"]), beams, None if server is None else Server(**server))


def _workload(values: dict[str, Any]) -> Workload:
    arrivals = tuple(Arrival(**{**each, "params": SamplingParams(**each["params"])}) for each in values["arrivals"])
    suggested = Suggestion(values["suggested"]["kv_tokens"], tuple(values["suggested"]["lanes"]))
    return Workload(**{**values, "arrivals": arrivals, "suggested": suggested})
