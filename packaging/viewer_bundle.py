"""Makes the replay viewer as one folder, which runs where neither Python nor torch is.

python packaging/viewer_bundle.py OUT

OUT/batchscope-viewer/batchscope-viewer RUN.bsrun shows a run; started alone it shows what lies beside it. PyInstaller
and what the viewer needs are installed into an environment that is thrown away; a C compiler and `strip` must be there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from shutil import copytree, ignore_patterns, which

ROOT = Path(__file__).parents[1]
NAME = "batchscope-viewer"
LARGEST = 150_000_000  # bytes
PYINSTALLER = "pyinstaller>=6.16,<7"
# A release of Python may be built with its symbols; what wheels bring is stripped, and broken by stripping it again.
SYMBOLS = "libpython*", "python3.*/lib-dynload/*.so", "libcrypto.so*", "libsqlite3.so*"


def environment(folder: Path) -> Path:
    """The Python of a fresh environment with the viewer in it."""
    python = folder / "bin" / "python"
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["viewer"]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([*pip, *needed, PYINSTALLER], check=True)
    source = folder / "source"  # a copy, in which no earlier build lies
    copytree(ROOT, source, ignore=ignore_patterns(".*", "build", "dist", "*.egg-info", "tests", "screenshots"))
    subprocess.run([*pip, "--no-deps", source], check=True)
    return python


def without_tables(library: Path) -> None:
    """ICU's data are a quarter of the folder, and Qt has tables of its own for what a window needs of them."""
    version = library.name.rpartition(".")[2]
    source = ROOT / "packaging" / "viewer" / "icu_stub.c"
    options = ["-shared", "-fPIC", "-s", f"-DVERSION={version}", f"-Wl,-soname,{library.name}"]
    library.unlink()
    subprocess.run(["cc", *options, "-o", library, source], check=True)


def bundle(out: Path) -> Path:
    """The folder, in `out`."""
    with tempfile.TemporaryDirectory(prefix="viewer-") as work:
        python = environment(Path(work) / "environment")
        spec = ROOT / "packaging" / "viewer" / "viewer.spec"
        options = ["--noconfirm", "--log-level", "WARN", "--distpath", out, "--workpath", Path(work) / "work"]
        subprocess.run([python, "-m", "PyInstaller", *options, spec], check=True, cwd=work)
    inside = out / NAME / "_internal"
    for pattern in SYMBOLS:
        for library in inside.glob(pattern):
            subprocess.run(["strip", library], check=True)
    for library in (inside / "PySide6" / "Qt" / "lib").glob("libicudata.so.*"):
        without_tables(library)
    return out / NAME


def lacking(folder: Path) -> list[str]:
    """Libraries that a window on X11 needs, and that this machine had none of to give."""
    wanted = json.loads((ROOT / "resources" / "qt_libraries.json").read_text())["screen"]
    return [f"{library} ({package})" for library, package in wanted.items() if not any(folder.rglob(library))]


def tried(folder: Path) -> float:
    """Seconds until a run was opened on no display and its panels were drawn. Raises SystemExit where that failed."""
    run = folder / "_internal" / "resources" / "scenes" / "runs" / "05-static.bsrun"
    given = os.environ | {"QT_QPA_PLATFORM": "offscreen", "LC_ALL": "C.UTF-8"}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as pictures:
        command = [folder / NAME, run, "--pictures", pictures]
        done = subprocess.run(command, env=given | {"BATCHSCOPE_DATA": pictures}, capture_output=True, text=True)
        drawn = len(list(Path(pictures).glob("*.png")))
    if done.returncode or "Traceback" in done.stderr or not drawn:
        raise SystemExit(f"the viewer draws no run:\n{done.stderr[-2000:]}")
    return time.perf_counter() - begun


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path, metavar="OUT", help="the folder in which that of the viewer is made")
    given = options.parse_args()
    if absent := [tool for tool in ("cc", "strip") if which(tool) is None]:
        print(f"{', '.join(absent)} not found: install binutils and a C compiler", file=sys.stderr)
        return 2
    folder = bundle(given.out.resolve())
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    print(f"{'viewer':<24}{folder}  {size / 1e6:.1f} MB")
    print(f"{'opens a run and draws it':<24}  in {tried(folder):.1f} s")
    if absent := lacking(folder):
        print(f"not on this machine, so not in it: {', '.join(absent)}; an X11 desktop without them opens no window")
    if size >= LARGEST:
        print(f"more than {LARGEST / 1e6:.0f} MB: see what is new in it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
