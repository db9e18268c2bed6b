"""The libraries that the project asks for, and what goes without each."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from app.cli.doctor.finding import NO_MODEL, NO_WINDOW, Finding, Status, missing

NO_SERVER = "`batchscope serve` is refused"
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
    "av": "no animation of a run or race is written",
    **dict.fromkeys(("starlette", "uvicorn", "uvloop", "httptools"), NO_SERVER),
    **dict.fromkeys(("pydantic", "pyjwt", "prometheus-client"), NO_SERVER),
    "sqlalchemy": "a server keeps no log of its requests",
    "psycopg": "a request log is kept in SQLite alone",
    **dict.fromkeys(("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"), "a server sends no spans by OTLP"),
}

EXTRAS = ("awq", "torchao", "constrained", "export", "video", "serve", "postgres", "otel")


def requirements() -> list[Requirement]:
    """What the project asks for on this system, its extras for users included.

    A checkout's own pyproject.toml comes before the installed metadata, which may be older.
    """
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
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
    extra = requirement.name in {"autoawq", "torchao", "llguidance", "pyarrow", "pandas", "av", "psycopg"}
    extra = extra or requirement.name.startswith("opentelemetry")
    if version is None:
        return Finding(requirement.name, Status.NOTE if extra else Status.MISSING, "not installed", cost, remedy)
    # The base version, since vendors ship the release itself as 2.11.0a0+something.
    if not requirement.specifier.contains(Version(version).base_version, prereleases=True):
        unlike = f"{version} is not {requirement.specifier}"
        return missing(requirement.name, unlike, f"untried here: {cost}, or wrongly", remedy)
    return Finding(requirement.name, Status.OK, version)
