"""`batchscope --install-desktop`: the entry in the menu, its icon, and the types of run and race files, for one person.

The places are those of the XDG base directories: below $XDG_DATA_HOME, or ~/.local/share.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import resources
from engine import InvalidInput

ICONS = "icons/hicolor/scalable"
FILES: Mapping[str, str] = {  # where they go, and the resource
    "applications/batchscope.desktop": "desktop/batchscope.desktop",
    "metainfo/batchscope.metainfo.xml": "desktop/batchscope.metainfo.xml",
    "mime/packages/batchscope.xml": "desktop/batchscope.xml",
    f"{ICONS}/apps/batchscope.svg": "icons/batchscope.svg",
    f"{ICONS}/mimetypes/application-x-batchscope-run.svg": "icons/batchscope-run.svg",
    f"{ICONS}/mimetypes/application-x-batchscope-race.svg": "icons/batchscope-run.svg",
}
UPDATES = (  # what has to know of them, where it is there, and the folder that it is told
    ("update-mime-database", "mime"),
    ("update-desktop-database", "applications"),
)


def data_home() -> Path:
    given = os.environ.get("XDG_DATA_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".local" / "share"


def install() -> list[Path]:
    """Writes the files; returns them. Raises InvalidInput."""
    home, written = data_home(), []
    for place, resource in FILES.items():
        path, text = home / place, resources.path(resource).read_text(encoding="utf-8")
        if path.suffix == ".desktop":
            text = text.replace("Exec=batchscope-window", f"Exec={exec_line()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror}; set XDG_DATA_HOME to another folder") from error
        written.append(path)
    _update(home)
    return written


def uninstall() -> list[Path]:
    """Removes the files that are there; returns them."""
    home = data_home()
    there = [path for path in (home / place for place in FILES) if path.exists()]
    for path in there:
        path.unlink()
    if there:
        _update(home)
    return there


def exec_line() -> str:
    """What starts this installation, quoted as the Desktop Entry Specification has it: a desktop knows no PATH of a
    virtual environment."""
    script = Path(sys.executable).parent / "batchscope-window"
    command = [str(script)] if script.exists() else [sys.executable, "-m", "app"]
    return " ".join(_quoted(part) for part in command)


def _quoted(part: str) -> str:
    for mark in ("\\", '"', "`", "$"):
        part = part.replace(mark, "\\" + mark)
    part = part.replace("\\", "\\\\").replace("%", "%%")
    return f'"{part}"' if any(mark in part for mark in " \t\n\"'\\><~|&;$*?#()`") else part


def _update(home: Path) -> None:
    for program, folder in UPDATES:
        if (found := shutil.which(program)) and (home / folder).is_dir():
            subprocess.run([found, str(home / folder)], check=False, capture_output=True, timeout=60)
