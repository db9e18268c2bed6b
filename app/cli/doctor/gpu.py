"""GPUs, what of torch reaches them, and what their kernels are built with."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from app.cli.doctor.finding import NO_MODEL, Finding, Status, missing
from app.interrupts import heard

if TYPE_CHECKING:
    from engine.core import Toolchain

GIB = 1024**3


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
    """Whether torch can be imported and reaches the GPU, and what the kernels are built with. `has_gpu`: NVML knows of
    one; torch may without it."""
    try:
        with heard():
            import torch
    except Exception as error:  # a broken build raises OSError, a missing one ImportError
        return [missing("CUDA", f"torch cannot be imported: {error}", NO_MODEL, "install torch again")]
    usable = torch.cuda.is_available()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = [cuda_finding(torch.__version__, torch.version.cuda, usable, has_gpu, visible)]
    if usable and (count := torch.cuda.device_count()) > 1:
        has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
        found.append(nccl_finding(count, torch.cuda.nccl.version() if has_nccl else None))
    try:
        from engine.core import Toolchain
    except ImportError:  # a library that is missing is told of as such
        return found
    return [*found, *toolchain_findings(Toolchain.here(), has_gpu or usable)]


def nccl_finding(cards: int, version: tuple[int, ...] | None) -> Finding:
    """Whether a model can be split over so many cards; `version` of torch's NCCL, None where it has none."""
    if version is None:
        cost = f"a model is on one of the {cards} GPUs: none is split over them"
        return missing("NCCL", "this torch has none", cost, "install torch's CUDA build for Linux (pytorch.org)")
    words = ".".join(map(str, version))
    return Finding("NCCL", Status.OK, f"{words}: a model can be split over {cards} GPUs, with --tensor-parallel")


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


def cuda_finding(
    version: str, built_for: str | None, usable: bool, has_gpu: bool, visible: str | None = None
) -> Finding:
    """`built_for` is the CUDA version of the build, None for a CPU build; `usable` is what torch says of it here;
    `visible` is CUDA_VISIBLE_DEVICES, None where it is not set."""
    if usable:
        through = f" through CUDA {built_for}" if built_for else ""
        return Finding("CUDA", Status.OK, f"torch {version} reaches the GPU{through}")
    if not has_gpu:
        return Finding("CUDA", Status.NOTE, f"torch {version} runs on the CPU")
    cost = "models run on the CPU although there is a GPU"
    if built_for is None:
        return missing("CUDA", f"torch {version} is a CPU build", cost, "install torch's CUDA build (pytorch.org)")
    if visible is not None:  # NVML shows what it hides
        hidden = f'CUDA_VISIBLE_DEVICES="{visible}" leaves torch {version} no GPU'
        return missing("CUDA", hidden, cost, "unset CUDA_VISIBLE_DEVICES, or name a GPU in it that is here")
    remedy = f"update the NVIDIA driver to one that runs CUDA {built_for}"
    return missing("CUDA", f"torch {version} is built for CUDA {built_for} and sees no device", cost, remedy)
