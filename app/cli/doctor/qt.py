"""Whether Qt starts, which of its system libraries it does not find, and the display."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys

import resources
from app.cli.doctor.finding import NO_WINDOW, Finding, Status, missing


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
