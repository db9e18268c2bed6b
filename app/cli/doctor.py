"""What this machine offers, and what each missing piece costs: the findings of `batchscope doctor`.

Importing this module is light. `examine` imports torch and starts one short child process that tries Qt.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import Version

import resources
from app.interrupts import heard

if TYPE_CHECKING:
    from engine.core import Toolchain

GIB = 1024**3


class Status(StrEnum):
    """MISSING: Batchscope would use it, and `cost` says what goes without. NOTE: worth knowing; nothing needs it."""

    OK = "ok"
    MISSING = "missing"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    status: Status
    detail: str
    cost: str = ""
    remedy: str = ""

    @property
    def words(self) -> str:
        """ "Qt finds no libEGL.so.1: sudo apt-get install libegl1"."""
        return f"{self.topic} {self.detail}: {self.remedy}" if self.remedy else f"{self.topic}: {self.detail}"


def missing(topic: str, detail: str, cost: str = "", remedy: str = "") -> Finding:
    return Finding(topic, Status.MISSING, detail, cost, remedy)


NO_MODEL = "no model can be loaded or run"
NO_WINDOW = "there is no window; the command line still works"
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
}


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
    """What the project asks for on this system, the extras `awq` and `torchao` included.

    A checkout's own pyproject.toml comes before the installed metadata, which may be older.
    """
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.exists():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        optional = table["optional-dependencies"]
        asked = [Requirement(line) for line in [*table["dependencies"], *optional["awq"], *optional["torchao"]]]
    else:
        try:
            asked = [Requirement(line) for line in metadata.requires("batchscope") or []]
        except metadata.PackageNotFoundError:
            asked = []

    def here(requirement: Requirement) -> bool:
        extras, marker = ("", "awq", "torchao"), requirement.marker
        return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)

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
    extra = requirement.name in {"autoawq", "torchao"}
    if version is None:
        return Finding(requirement.name, Status.NOTE if extra else Status.MISSING, "not installed", cost, remedy)
    # The base version, since vendors ship the release itself as 2.11.0a0+something.
    if not requirement.specifier.contains(Version(version).base_version, prereleases=True):
        unlike = f"{version} is not {requirement.specifier}"
        return missing(requirement.name, unlike, f"untried here: {cost}, or wrongly", remedy)
    return Finding(requirement.name, Status.OK, version)


# The GPU


def gpu_findings() -> list[Finding]:
    """One finding a GPU, as NVML sees them, or one that says what is lost without any."""
    try:
        import pynvml
    except ImportError:
        return [no_gpu("nvidia-ml-py is not installed, so none was looked for")]
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [no_gpu(f"no NVIDIA GPU found ({error})")]
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = pynvml.nvmlDeviceGetName(handle)
            try:
                memory = f"{pynvml.nvmlDeviceGetMemoryInfo(handle).total / GIB:.0f} GiB"
            except pynvml.NVMLError as error:
                memory = f"memory not told ({error})"
            capability = (99, 0)  # where it is not told, a load will
            with contextlib.suppress(pynvml.NVMLError):
                capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
            found.append(gpu_finding(index, name, f"{memory}, driver {driver}", capability))
        return found or [no_gpu("the NVIDIA driver is there, but shows no GPU")]
    except pynvml.NVMLError as error:
        return [no_gpu(f"the NVIDIA driver does not answer ({error})")]
    finally:
        pynvml.nvmlShutdown()


def gpu_finding(index: int, name: str, facts: str, capability: tuple[int, int]) -> Finding:
    old = ""
    with contextlib.suppress(ImportError):  # a library that is missing is told of as such
        from engine.core import too_old

        old = too_old(name, capability)
    if old:
        return missing(f"GPU {index}", f"{old}; {facts}", "models run on the CPU", "a GPU of 2020 or newer")
    return Finding(f"GPU {index}", Status.OK, f"{name}, {facts}")


def no_gpu(detail: str) -> Finding:
    cost = "models run on the CPU: the demo model well, large ones tens to hundreds of times slower"
    return missing("GPU", detail, cost, "for large models, an NVIDIA GPU and its driver")


def torch_findings(has_gpu: bool) -> list[Finding]:
    """Whether torch can be imported and reaches the GPU, and what the kernels are built with."""
    try:
        with heard():
            import torch
    except Exception as error:  # a broken build raises OSError, a missing one ImportError
        return [missing("CUDA", f"torch cannot be imported: {error}", NO_MODEL, "install torch again")]
    usable = torch.cuda.is_available()
    found = cuda_finding(torch.__version__, torch.version.cuda, usable, has_gpu)
    try:
        from engine.core import Toolchain
    except ImportError:  # a library that is missing is told of as such
        return [found]
    return [found, *toolchain_findings(Toolchain.here(), has_gpu)]


def toolchain_findings(tools: Toolchain, has_gpu: bool) -> list[Finding]:
    """What Triton starts its kernels with on a GPU; without one the compiler alone, for the CPU's kernels."""
    compiler = tools.compiler() or shutil.which("cc", path=tools.path)
    slow = "on a CPU attention and the small operations stay torch's, and a step takes up to twice as long"
    if has_gpu and (lacks := tools.lacks()):
        cost = "Triton cannot start its kernels: models run on the CPU although there is a GPU"
        costs = (cost if compiler else f"{cost}; {slow}" for _ in lacks)
        return [missing("Triton's tools", what, cost, remedy) for (what, remedy), cost in zip(lacks, costs)]
    if compiler is None:
        return [missing("C compiler", "none found", slow, "sudo apt-get install gcc libc6-dev")]
    return [Finding("C compiler", Status.OK, compiler)]


def cuda_finding(version: str, built_for: str | None, usable: bool, has_gpu: bool) -> Finding:
    """`built_for` is the CUDA version of the build, None for a CPU build; `usable` is what torch says of it here."""
    if usable:
        through = f" through CUDA {built_for}" if built_for else ""
        return Finding("CUDA", Status.OK, f"torch {version} reaches the GPU{through}")
    if not has_gpu:
        return Finding("CUDA", Status.NOTE, f"torch {version} runs on the CPU")
    cost = "models run on the CPU although there is a GPU"
    if built_for is None:
        return missing("CUDA", f"torch {version} is a CPU build", cost, "install torch's CUDA build (pytorch.org)")
    remedy = f"update the NVIDIA driver to one that runs CUDA {built_for}"
    return missing("CUDA", f"torch {version} is built for CUDA {built_for} and sees no device", cost, remedy)


# The window


def qt_finding() -> Finding:
    """Opens an application without a window in a child process, on the screen where there is one, else offscreen."""
    environment = {**os.environ, "QT_DEBUG_PLUGINS": "1"}
    if sys.platform == "linux" and display_finding(environment).status is not Status.OK:
        environment["QT_QPA_PLATFORM"] = "offscreen"
    program = "from PySide6.QtGui import QGuiApplication; print(QGuiApplication([]).platformName())"
    command = [sys.executable, "-P", "-c", program]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return missing("Qt", "did not start within a minute", NO_WINDOW)
    if done.returncode == 0:
        return Finding("Qt", Status.OK, f"starts on the platform {done.stdout.strip()}")
    return qt_failure(done.stderr)


def qt_packages() -> dict[str, str]:
    """The libraries that Qt loads for a window on a screen, each with its Debian package."""
    groups: dict[str, dict[str, str]] = json.loads(resources.path("qt_libraries.json").read_text(encoding="utf-8"))
    return {soname: package for group in groups.values() for soname, package in group.items()}


def lost_libraries() -> str:
    """What the dynamic loader says of those of Qt's libraries that it does not find, a line each."""
    said = []
    for soname in qt_packages() if sys.platform == "linux" else ():
        try:
            ctypes.CDLL(soname)
        except OSError as error:
            said.append(str(error))
    return "\n".join(said)


def qt_failure(errors: str) -> Finding:
    """What kept Qt from starting, read from what it printed: the library, and the Debian package that brings it."""
    packages = qt_packages()
    absent = list(dict.fromkeys(re.findall(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object file", errors)))
    if not absent:
        last = errors.strip().splitlines()[-1] if errors.strip() else "Qt ended without a word"
        return missing("Qt", last, NO_WINDOW)
    known = " ".join(packages[soname] for soname in absent if soname in packages)
    remedy = f"sudo apt-get install {known}" if known else f"install the packages that bring {', '.join(absent)}"
    return missing("Qt", f"finds no {', '.join(absent)}", NO_WINDOW, remedy)


def display_finding(environment: dict[str, str]) -> Finding:
    if sys.platform != "linux":
        return Finding("display", Status.OK, "the system's own")
    for name in ("WAYLAND_DISPLAY", "DISPLAY"):
        if environment.get(name):
            return Finding("display", Status.OK, f"{name}={environment[name]}")
    cost = "the window is played offscreen and leaves a picture and the run's file"
    return missing("display", "neither DISPLAY nor WAYLAND_DISPLAY is set", cost, "start it from a desktop session")


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
