"""What a machine must have before the first Triton kernel runs there: a card new enough, and what Triton builds its
launcher with. No torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Compute capability. An sm_75 has no bfloat16 and 64 KB of shared memory: prefill's tiles spill there or do not fit.
LEAST_CAPABILITY = (8, 0)
LDCONFIG = Path("/sbin/ldconfig")  # Triton calls it by this name
LIBRARY = "libcuda.so.1"
PACKAGES = "gcc libc6-dev python3-dev"


class Lack(NamedTuple):
    """What is missing, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Where Triton looks: `cc` is $CC, `path` is $PATH, `include` the folder of Python.h; `libraries` are folders that
    it is told the driver's library may be in."""

    cc: str | None
    path: str | None
    include: Path
    ldconfig: Path = LDCONFIG
    libraries: tuple[Path, ...] = ()

    @classmethod
    def here(cls) -> Toolchain:
        # Triton too: Debian's own scheme names a folder below /usr/local, where Python.h is not.
        scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
        include = Path(sysconfig.get_path("include", scheme))
        told = ":".join(os.environ.get(name, "") for name in ("TRITON_LIBCUDA_PATH", "LD_LIBRARY_PATH")).split(":")
        folders = tuple(Path(folder) for folder in told if folder)
        return cls(os.environ.get("CC"), os.environ.get("PATH"), include, libraries=folders)

    def compiler(self) -> str | None:
        """The C compiler that Triton would call: $CC and no other where that is set."""
        names = ("gcc", "clang") if self.cc is None else (self.cc,)
        return next(filter(None, (shutil.which(name, path=self.path) for name in names)), None)

    def lacks(self) -> list[Lack]:
        found = []
        if self.compiler() is None:
            sought = "gcc or clang" if self.cc is None else f"CC={self.cc}"
            remedy = "sudo apt-get install gcc libc6-dev"
            found.append(Lack(f"no C compiler ({sought})", remedy if self.cc is None else f"unset CC, or {remedy}"))
        if not (self.include / "Python.h").exists():
            found.append(Lack(f"no Python.h in {self.include}", "sudo apt-get install python3-dev"))
        if any((folder / LIBRARY).exists() for folder in self.libraries):
            return found
        if not self.ldconfig.exists():
            found.append(Lack(f"no {self.ldconfig}", "sudo apt-get install libc-bin"))
        elif LIBRARY not in subprocess.run([self.ldconfig, "-p"], capture_output=True, text=True, check=False).stdout:
            found.append(Lack(f"no {LIBRARY} by ldconfig", "sudo ldconfig, once NVIDIA's driver is installed"))
        return found


def too_old(name: str, capability: tuple[int, int]) -> str:
    """Why no kernel runs on a card of this compute capability; "" where they do."""
    if capability >= LEAST_CAPABILITY:
        return ""
    had, needed = (f"{major}.{minor}" for major, minor in (capability, LEAST_CAPABILITY))
    return f"{name} has compute capability {had}, and the GPU kernels need {needed} or newer"


def why_not(error: Exception, lacks: list[Lack]) -> str:
    """Why a first launch failed: what the machine lacks, the error's own words, and what to do, where that is known."""
    said = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    remedies = [lack.remedy for lack in lacks]
    if isinstance(error, subprocess.CalledProcessError):  # a compiler's command is a line of many folders
        said = f"{error.cmd[0]} failed with exit status {error.returncode}"
        remedies = remedies or [f"sudo apt-get install {PACKAGES}"]
    elif isinstance(error, PermissionError):
        remedies = remedies or ["set TRITON_CACHE_DIR to a folder that can be written"]
    what = " and ".join(lack.what for lack in lacks)
    cause = f"it finds {what} ({said})" if what else said
    remedy = f". To use the GPU: {'; '.join(remedies)}" if remedies else ""
    return f"Triton cannot start a kernel here: {cause}{remedy}"
