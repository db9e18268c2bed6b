"""How to make a run again: the commands, and the words to cite it by."""

import re
import shlex
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from engine.compare import lane_text
from engine.export.source import Source
from engine.trace import Trace

AUTHOR, RELEASED = "The Batchscope developers", "2026-11-20"  # as CITATION.cff says, which no wheel holds


def commands(source: Source) -> list[str]:
    """Two commands: the prompts out of the run's file, and the same prompts through the same lanes. `--kv-memory` is
    the pool that each had, `--threads` those of the machine."""
    stem = re.sub(r"\.\w+$", "", source.file) or "run"
    prompts = f"{stem} prompts.jsonl" if " " in stem else f"{stem}-prompts.jsonl"
    file = source.file or "run.bsrun"
    trace = source.runs[0].trace
    header = trace.header
    memory = header.kv_memory
    repeats = 1
    again = ["batchscope", "compare", "--workload", prompts, "--lanes", ",".join(map(lane_text, source.lanes))]
    if source.race is not None:
        memory = source.race.kv_memory or memory
        repeats = 1 + max(run.repeat for run in source.runs)
        if source.race.workload.concurrency is not None:
            again += ["--concurrency", str(source.race.workload.concurrency)]
    again += ["--kv-memory", str(memory)] if memory else []
    again += ["--repeats", str(repeats)] if repeats > 1 else []
    if header.model.device == "cpu":
        again += ["--threads", str(header.machine.threads)]
    return [shlex.join(["batchscope", "export", file, "--to", prompts]), shlex.join(again)]


def all_commands(source: Source) -> list[list[str]]:
    """The commands of each: several runs that are no race were made one by one."""
    if source.alone or source.race is not None:
        return [commands(source)]
    return [commands(Source.of_trace(run.trace, run.name, run.file)) for run in source.runs]


def created(trace: Trace) -> str:
    """When the run was made, in UTC."""
    return datetime.fromtimestamp(trace.header.created, UTC).strftime("%Y-%m-%d %H:%M UTC")


def citation(source: Source) -> str:
    """As BibTeX."""
    header = source.runs[0].trace.header
    when = datetime.fromtimestamp(header.created, UTC)
    machine = header.machine.gpu or header.machine.cpu
    note = f"{header.model.name}, {header.model.dtype}, on {machine}; run of {when:%Y-%m-%d}"
    return (
        f"@misc{{batchscope-{when:%Y%m%d-%H%M},\n"
        f"  title        = {{{_tex(source.title)}}},\n"
        f"  howpublished = {{Run of Batchscope {batchscope_version()}}},\n"
        f"  year         = {{{when:%Y}}},\n"
        f"  note         = {{{_tex(note)}}}\n}}"
    )


def software_citation() -> str:
    """Batchscope itself, as BibTeX."""
    return (
        f"@software{{batchscope,\n"
        f"  title   = {{Batchscope}},\n"
        f"  author  = {{{{{AUTHOR}}}}},\n"
        f"  version = {{{batchscope_version()}}},\n"
        f"  date    = {{{RELEASED}}},\n"
        f"  year    = {{{RELEASED[:4]}}},\n"
        f"  license = {{Apache-2.0}}\n}}"
    )


def batchscope_version() -> str:
    try:
        return version("batchscope")
    except PackageNotFoundError:
        return ""


def made_by() -> str:
    """ "Batchscope 0.1.0"."""
    return f"Batchscope {batchscope_version()}".rstrip()


def _tex(text: str) -> str:
    return re.sub(r"([&%$#_{}])", r"\\\1", text)
