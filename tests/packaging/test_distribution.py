"""The sdist holds all that the wheel is made of, and the wheel all that the program reads."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = "app", "engine", "resources"
SOURCES = *PACKAGES, "packaging", "pyproject.toml", "README.md", "LICENSE"
SHARED = "applications/batchscope.desktop", "metainfo/batchscope.metainfo.xml"


def build(what: str, source: Path, out: Path) -> Path:
    """By the backend itself, in this environment."""
    program = f"import setuptools.build_meta as backend; backend.build_{what}({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "would be ignored" not in done.stderr, "who installs it is warned of a folder that is in no package"
    (made,) = out.glob("*.whl" if what == "wheel" else "*.tar.gz")
    return made


def name_of_large(source: str, made: str) -> None:
    """Copies a file; of models and recordings only the name, which is all that is asked for: packing takes seconds."""
    if Path(source).stat().st_size < 1 << 17:
        shutil.copy(source, made)
    else:
        Path(made).touch()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel that the sdist gives."""
    folder = tmp_path_factory.mktemp("distribution")
    source, unpacked = folder / "source", folder / "unpacked"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            left = shutil.ignore_patterns("__pycache__", "*.pyc", "screenshots")
            shutil.copytree(ROOT / name, source / name, ignore=left, copy_function=name_of_large)
        else:
            shutil.copy(ROOT / name, source / name)
    with tarfile.open(build("sdist", source, folder)) as archive:
        archive.extractall(unpacked, filter="data")
    (root,) = unpacked.iterdir()
    with zipfile.ZipFile(build("wheel", root, folder)) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_the_wheel_from_the_sdist_holds_every_module_and_every_resource(wheel: set[str]) -> None:
    """Models, scenes and their recordings, workloads, styles, native sources: whatever lies in a package."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file()]
    read = {str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts and file.suffix != ".md"}
    assert len(read) > 500
    assert read - wheel == set()
    for shared in SHARED:
        assert [name for name in wheel if name.endswith(f"share/{shared}")]
    foreign = {name.partition("/")[0] for name in wheel} - set(PACKAGES)
    assert all(name.startswith("batchscope-") for name in foreign), foreign


def test_the_viewer_asks_for_nothing_that_the_whole_does_not() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    viewer, whole = project["dependency-groups"]["viewer"], project["project"]["dependencies"]
    assert set(viewer) <= set(whole)
    assert not [name for name in viewer if name.startswith(("torch", "transformers"))]
