"""Finds the system packages that Batchscope needs before pip can do the rest, and installs them when run as root.

    python3 packaging/qt_libraries.py [--offscreen] [--venv .venv]

Standard library only, and readable by old Pythons, since it also says which Python is needed. Exit status 0: nothing is
missing any more. 1: something is, and the text says what to do.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

LIBRARIES = Path(__file__).resolve().parent.parent / "resources" / "qt_libraries.json"
OLDEST_PYTHON = (3, 11)
# The 64-bit time_t transition renamed it in Debian 13 and Ubuntu 24.04.
RENAMED = {"libglib2.0-0": "libglib2.0-0t64"}


def wanted(screen: bool) -> dict[str, str]:
    """The libraries that Qt loads, each with its Debian package; those of a real screen only where there is one."""
    groups: dict[str, dict[str, str]] = json.loads(LIBRARIES.read_text(encoding="utf-8"))
    return {**groups["offscreen"], **(groups["screen"] if screen else {})}


def has_screen(environment: dict[str, str]) -> bool:
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def absent(sonames: list[str]) -> list[str]:
    """Those that the dynamic loader does not find, the way Qt would ask it."""

    def loads(soname: str) -> bool:
        try:
            ctypes.CDLL(soname)
        except OSError:
            return False
        return True

    return [soname for soname in sonames if not loads(soname)]


def read_os_release(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): " ".join(shlex.split(value)) for key, value in pairs}


def is_debian_like(release: dict[str, str]) -> bool:
    return bool({"debian", "ubuntu"} & {release.get("ID", ""), *release.get("ID_LIKE", "").split()})


def package_names(packages: list[str], release: dict[str, str]) -> list[str]:
    """The same packages under the names this release gives them, sorted, each once.

    A derivative keeps the older names: apt takes them for the newer ones, which provide them.
    """
    renames_from = {"debian": 13, "ubuntu": 24}.get(release.get("ID", ""), sys.maxsize)
    # Debian testing and unstable carry no version, and are newer than any that does.
    major = int(release.get("VERSION_ID", str(sys.maxsize - 1)).split(".")[0])
    renamed = RENAMED if major >= renames_from else {}
    return sorted({renamed.get(package, package) for package in packages})


def venv_package(venv: Path) -> list[str]:
    """What Debian splits off from Python and `python3 -m venv` cannot do without; nothing once `venv` has its pip."""
    if (venv / "bin" / "pip").exists() or importlib.util.find_spec("ensurepip") is not None:
        return []
    return [f"python{sys.version_info.major}.{sys.version_info.minor}-venv"]


def apt_line(packages: list[str]) -> str:
    return "sudo apt-get install --no-install-recommends " + " ".join(packages)


def message(sonames: list[str], packages: list[str], debian_like: bool) -> str:
    """What is missing and the one line that puts it right."""
    found = [f"Qt finds no {', '.join(sonames)}."] if sonames else []
    if debian_like:
        return "\n".join(
            [
                *found,
                "These system packages are missing. Install them, then run make again:",
                "",
                "    " + apt_line(packages),
                "",
            ]
        )
    return "\n".join([*found, f"Install what brings them here. On Debian the packages are: {' '.join(packages)}"])


def install(packages: list[str]) -> bool:
    """Installs as root without asking anything; False when apt-get fails, having said why itself."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=environment, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return False
    importlib.invalidate_caches()
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Finds, and as root installs, the system packages Batchscope needs.")
    parser.add_argument("--offscreen", action="store_true", help="ask for no screen's libraries, as the tests do")
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="the environment that is about to be made")
    options = parser.parse_args(arguments)

    if sys.version_info < OLDEST_PYTHON and not (options.venv / "bin" / "pip").exists():
        oldest, this = ".".join(map(str, OLDEST_PYTHON)), sys.version.split()[0]
        print(f"Batchscope needs Python {oldest} or newer; {sys.executable} is {this}.")
        print("Name another one: make run PYTHON=python3.12")
        return 1

    libraries = wanted(screen=has_screen(dict(os.environ)) and not options.offscreen) if sys.platform == "linux" else {}
    sonames = absent(list(libraries))
    release_file = Path("/etc/os-release")
    release = read_os_release(release_file.read_text(encoding="utf-8")) if release_file.exists() else {}
    packages = package_names([libraries[soname] for soname in sonames] + venv_package(options.venv), release)
    if not packages:
        return 0

    debian_like = is_debian_like(release) and shutil.which("apt-get") is not None
    if debian_like and os.geteuid() == 0:
        print(f"Installing the missing system packages: {' '.join(packages)}", flush=True)
        if install(packages) and not absent(sonames) and not venv_package(options.venv):
            return 0
        print("apt-get could not install them all.")
    print(message(sonames, packages, debian_like))
    return 1


if __name__ == "__main__":
    sys.exit(main())
