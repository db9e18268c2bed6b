"""What this machine offers, and what each missing piece costs: the findings of `batchscope doctor`.

Importing this module is light. `examine` imports torch and starts one short child process that tries Qt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

import resources
from app.cli.finding import NO_MODEL, NO_WINDOW, Finding, Status, missing
from app.cli.gpu_findings import gpu_findings, torch_findings
from app.cli.qt_findings import display_finding, qt_finding

GIB = 1024**3


COSTS = {
    **dict.fromkeys(("torch", "transformers", "tokenizers", "safetensors", "psutil"), NO_MODEL),
    **dict.fromkeys(("pyside6-essentials", "pyqtgraph", "qasync"), NO_WINDOW),
    **dict.fromkeys(("accelerate", "bitsandbytes"), "int8 and nf4 quantization are refused"),
    "numpy": "nothing runs: the records are NumPy columns",
    "huggingface_hub": "models come from local folders only",
    "triton": "the GPU kernels cannot run; on a CPU only their tests are lost",
    "nvidia-ml-py": "GPU figures stay empty",
    "tqdm": "long work shows no progress on the command line",
    "autoawq": "AWQ checkpoints cannot be made; reading them needs nothing more",
    "torchao": "torchao's int8 weights are not offered",
    "llguidance": "regex, choices and json_schema are refused",
    "pyarrow": "runs are not exported as Parquet",
    "pandas": "a notebook gets no tables of a trace",
}

EXTRAS = ("awq", "torchao", "constrained", "export")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser("doctor", help="what machine, GPU, libraries and models are here")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    findings = examine()
    print(json.dumps([asdict(f) for f in findings], indent=1) if options.json else render(findings))
    return 0


def examine() -> list[Finding]:
    """Looks at everything, and reaches no network. A few seconds: importing torch is most of it."""
    gpus = gpu_findings()
    return [
        Finding("system", Status.OK, f"{platform.system()} {platform.release()}, {distribution()}"),
        *hardware_findings(),
        python_finding(sys.version_info[:3]),
        *library_findings(),
        *gpus,
        *torch_findings(has_gpu=any(finding.status is Status.OK for finding in gpus)),
        qt_finding(),
        display_finding(dict(os.environ)),
        demo_model_finding(resources.path("models")),
        cached_models_finding(),
        Finding("network", Status.NOTE, "not tried: a model named by its hub id is fetched when it is loaded"),
    ]


def render(findings: Sequence[Finding]) -> str:
    """One line a finding, its cost and remedy below it where there are any, and the count of each status."""
    width = max((len(finding.topic) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.status:<8} {finding.topic:<{width}}  {finding.detail}")
        margin = " " * (width + 11)
        told = (("costs", finding.cost), ("to do", finding.remedy))
        lines += [f"{margin}{word}: {text}" for word, text in told if text]
    counts = (f"{sum(finding.status is status for finding in findings)} {status}" for status in Status)
    return "\n".join([*lines, "", " · ".join(counts)])


# The machine


def distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "an unnamed distribution")
    except OSError:
        return platform.version()


def instruction_sets() -> frozenset[str]:
    """The processor's flags as Linux names them; none where the system lists none."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE):
            return frozenset(match[1].split())
    return frozenset()


def hardware_findings() -> list[Finding]:
    try:
        import psutil

        from engine.core import processor_name, usable_cores
    except ImportError:
        return [Finding("CPU", Status.NOTE, "neither it nor the memory is known without psutil")]
    memory = psutil.virtual_memory()
    detail = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB of it available"
    return [cpu_finding(processor_name(), usable_cores(), instruction_sets()), Finding("memory", Status.OK, detail)]


def cpu_finding(name: str, cores: int, flags: frozenset[str]) -> Finding:
    spoken = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 bf16", "amx_bf16": "AMX bf16"}
    known = [word for flag, word in spoken.items() if flag in flags]
    detail = f"{name}, {cores} {'core' if cores == 1 else 'cores'}" + (f", {', '.join(known)}" if known else "")
    if flags and "avx2" not in flags:
        return missing("CPU", f"{detail}, no AVX2", cost="models on the CPU run several times slower")
    if flags and not flags & {"avx512_bf16", "amx_bf16"}:
        return Finding("CPU", Status.NOTE, detail, cost="bfloat16 is computed in software: float32 may be faster here")
    return Finding("CPU", Status.OK, detail)


def python_finding(version: tuple[int, ...]) -> Finding:
    spoken = ".".join(map(str, version))
    if version < (3, 11):
        return missing("Python", f"{spoken}, older than 3.11", "nothing runs", "install Python 3.11 or newer")
    return Finding("Python", Status.OK, spoken)


# Libraries


def requirements() -> list[Requirement]:
    """What the project asks for on this system, its extras for users included.

    A checkout's own pyproject.toml comes before the installed metadata, which may be older.
    """
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.exists():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        optional = table["optional-dependencies"]
        lines = [*table["dependencies"], *(line for extra in EXTRAS for line in optional[extra])]
        asked = [Requirement(line) for line in lines]
    else:
        try:
            asked = [Requirement(line) for line in metadata.requires("batchscope") or []]
        except metadata.PackageNotFoundError:
            asked = []

    def here(requirement: Requirement) -> bool:
        marker = requirement.marker
        return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *EXTRAS))

    return [requirement for requirement in asked if requirement.name.lower() in COSTS and here(requirement)]


def library_findings() -> list[Finding]:
    def installed(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return [library_finding(requirement, installed(requirement.name)) for requirement in requirements()]


def library_finding(requirement: Requirement, version: str | None) -> Finding:
    """Whether `version` (None: not installed) satisfies the requirement, and what it costs where it does not."""
    cost, remedy = COSTS.get(requirement.name.lower(), ""), f'pip install "{requirement.name}{requirement.specifier}"'
    extra = requirement.name in {"autoawq", "torchao", "llguidance", "pyarrow", "pandas"}
    if version is None:
        return Finding(requirement.name, Status.NOTE if extra else Status.MISSING, "not installed", cost, remedy)
    # The base version, since vendors ship the release itself as 2.11.0a0+something.
    if not requirement.specifier.contains(Version(version).base_version, prereleases=True):
        unlike = f"{version} is not {requirement.specifier}"
        return missing(requirement.name, unlike, f"untried here: {cost}, or wrongly", remedy)
    return Finding(requirement.name, Status.OK, version)


# Models


def demo_model_finding(folder: Path) -> Finding:
    """The models that travel with Batchscope: folders with a config.json and weights."""
    found = {
        config.parent.name: sum(file.stat().st_size for file in config.parent.glob("*.safetensors"))
        for config in sorted(folder.glob("*/config.json"))
    }
    whole = [f"{name} ({size / 1e6:.1f} MB)" for name, size in found.items() if size]
    if whole:
        return Finding("demo model", Status.OK, ", ".join(whole))
    cost = 'ModelSpec("demo") cannot be loaded; every other model can'
    remedy = "install Batchscope again, or train it: packaging/train_demo_model.py"
    return missing("demo model", f"no model in {folder}", cost, remedy)


def cached_models_finding() -> Finding:
    """What the Hugging Face cache holds already, the largest first; none is no fault."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return Finding("cached models", Status.NOTE, "not known without huggingface_hub")
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return Finding("cached models", Status.NOTE, "none: there is no Hugging Face cache yet")
    models = sorted((repo for repo in cache.repos if repo.repo_type == "model"), key=lambda repo: -repo.size_on_disk)
    if not models:
        return Finding("cached models", Status.NOTE, "none in the Hugging Face cache")
    names = ", ".join(f"{repo.repo_id} ({repo.size_on_disk / 1e9:.1f} GB)" for repo in models[:5])
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return Finding("cached models", Status.OK, names + more)
