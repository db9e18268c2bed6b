"""Where the app keeps what it writes."""

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QSettings, QStandardPaths

from app.language import tr
from engine import InvalidInput
from engine.trace import RUN_SUFFIX

ORGANIZATION = "Batchscope"
DIGEST = 8  # bytes
RUNS_FOLDER = "runs/folder"  # the key of the chosen one


def data() -> Path:
    """The app's own folder: $BATCHSCOPE_DATA, or the desktop's place for application data."""
    chosen = os.environ.get("BATCHSCOPE_DATA")
    if chosen:
        return Path(chosen)
    return Path(QStandardPaths.writableLocation(QStandardPaths.StandardLocation.GenericDataLocation)) / "batchscope"


def keep_private() -> None:
    """Prompts are for their owner alone: so is this folder, one of an older version too. A chosen one that is there
    stays as it is."""
    with contextlib.suppress(OSError):
        data().mkdir(0o700, parents=True, exist_ok=True)
        if not os.environ.get("BATCHSCOPE_DATA"):
            data().chmod(0o700)


def made(folder: Path) -> Path:
    """A folder that pictures go to. Raises InvalidInput where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = {"folder": folder, "why": error.strerror}
        if folder.is_relative_to(data()):
            words = tr("cannot write to the folder {folder}: {why}; set BATCHSCOPE_DATA to another", **told)
        else:
            words = tr("cannot write to the folder {folder}: {why}; choose another", **told)
        raise InvalidInput(words) from error
    return folder


def beside() -> Path | None:
    """The folder of the program, where that is the viewer's bundle: a speaker puts runs there."""
    return Path(sys.executable).parent if getattr(sys, "frozen", False) else None


def runs() -> Path:
    """Where runs and races are written: the folder that was chosen, or one of the app's own; in the bundle, its own."""
    chosen = str(settings().value(RUNS_FOLDER, ""))
    own = beside() or data() / "runs"
    return Path(chosen) if os.path.isabs(chosen) and "\0" not in chosen and beside() is None else own


def indexes() -> Path:
    """Where what is known of whole runs is kept, so that they need not be read again: `engine.trace.IndexFolder`."""
    return data() / "indexes"


def new_run_file(source: str, suffix: str = RUN_SUFFIX) -> Path:
    """A name that tells when and with which model, or of what, and that no other file has."""
    model = re.sub(r"[^\w.-]+", "-", Path(source).name or source).strip("-.") or "model"
    stem = f"{time.strftime('%Y-%m-%d %H.%M.%S')} {model}"
    path, count = runs() / f"{stem}{suffix}", 2
    while path.exists():
        path, count = runs() / f"{stem} {count}{suffix}", count + 1
    return path


def keep(key: str, value: object) -> None:
    """Remembers it as JSON between starts."""
    settings().setValue(key, json.dumps(value))


def kept_list(key: str) -> list[Any]:
    """What `keep` has written; empty where there is nothing, or what cannot be read any more."""
    try:
        kept = json.loads(str(settings().value(key, "[]")))
    except ValueError:
        return []
    return kept if isinstance(kept, list) else []


def keep_state(key: str, state: QByteArray) -> None:
    """Remembers what Qt says of a window, of docks or of columns."""
    data = state.data()
    settings().setValue(key, QByteArray(_digest(data) + data))


def kept_state(key: str) -> QByteArray | None:
    """What `keep_state` has written; None where there is nothing, or a byte of it is another: Qt believes all that it
    is given here, and asks for 20 GB where a damaged number of columns says so."""
    value = settings().value(key)
    data = value.data() if isinstance(value, QByteArray) else b""
    return QByteArray(data[DIGEST:]) if data and _digest(data[DIGEST:]) == data[:DIGEST] else None


def _digest(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST]


def settings() -> QSettings:
    """What is remembered between starts; with $BATCHSCOPE_DATA it lives in a file there."""
    if os.environ.get("BATCHSCOPE_DATA"):
        return QSettings(str(data() / "settings.ini"), QSettings.Format.IniFormat)
    return QSettings(ORGANIZATION, ORGANIZATION)
