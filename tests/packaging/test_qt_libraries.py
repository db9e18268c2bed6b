"""packaging/qt_libraries.py: what it asks for, under which names, and what it says."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "qt_libraries.py"


@pytest.fixture(scope="module")
def qt_libraries() -> ModuleType:
    spec = importlib.util.spec_from_file_location("qt_libraries", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_real_screen_asks_for_the_offscreen_libraries_and_more(qt_libraries: ModuleType) -> None:
    offscreen, screen = qt_libraries.wanted(screen=False), qt_libraries.wanted(screen=True)
    assert offscreen["libEGL.so.1"] == "libegl1"
    assert "libxcb-cursor.so.0" not in offscreen
    assert screen.items() > offscreen.items()
    assert screen["libxcb-cursor.so.0"] == "libxcb-cursor0"


@pytest.mark.parametrize(
    ("environment", "screen"),
    [({}, False), ({"DISPLAY": ""}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "wayland-0"}, True)],
)
def test_a_screen_is_there_when_its_variable_is_set(
    qt_libraries: ModuleType, environment: dict[str, str], screen: bool
) -> None:
    assert qt_libraries.has_screen(environment) is screen


def test_only_the_library_that_cannot_be_loaded_is_absent(qt_libraries: ModuleType) -> None:
    assert qt_libraries.absent(["libc.so.6", "libnobodyhasit.so.9"]) == ["libnobodyhasit.so.9"]


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ('ID=debian\nVERSION_ID="12"', "libglib2.0-0"),
        ('ID=debian\nVERSION_ID="13"', "libglib2.0-0t64"),
        ("ID=debian\nVERSION_CODENAME=forky", "libglib2.0-0t64"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"', "libglib2.0-0"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"', "libglib2.0-0t64"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"', "libglib2.0-0"),
    ],
)
def test_packages_carry_the_names_of_the_release(qt_libraries: ModuleType, release: str, name: str) -> None:
    fields = qt_libraries.read_os_release(release)
    assert qt_libraries.is_debian_like(fields)
    assert qt_libraries.package_names(["libglib2.0-0", "libegl1", "libegl1"], fields) == ["libegl1", name]


def test_another_distribution_is_told_the_libraries_and_not_to_use_apt(qt_libraries: ModuleType) -> None:
    assert not qt_libraries.is_debian_like(qt_libraries.read_os_release("ID=fedora\nVERSION_ID=43"))
    text = qt_libraries.message(["libEGL.so.1"], ["libegl1"], debian_like=False)
    assert "libEGL.so.1" in text
    assert "apt-get" not in text


def test_debian_is_told_the_exact_line(qt_libraries: ModuleType) -> None:
    text = qt_libraries.message(["libEGL.so.1", "libGL.so.1"], ["libegl1", "libgl1"], debian_like=True)
    assert "Qt finds no libEGL.so.1, libGL.so.1." in text
    assert "    sudo apt-get install --no-install-recommends libegl1 libgl1\n" in text


def test_an_environment_with_its_pip_needs_no_venv_package(qt_libraries: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip").touch()
    assert qt_libraries.venv_package(tmp_path) == []


def test_a_python_without_ensurepip_is_told_the_package_that_brings_it(tmp_path: Path) -> None:
    hidden = (
        "import sys, runpy\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'ensurepip': raise ModuleNotFoundError(name)\n"
    )
    program = (
        f"{hidden}"
        "import importlib.util as util\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"functions = runpy.run_path({str(SCRIPT)!r})\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'ensurepip' else real(name)\n"
        "from pathlib import Path\n"
        f"print(*functions['venv_package'](Path({str(tmp_path)!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"python3.{sys.version_info.minor}-venv"


def test_nothing_is_said_where_nothing_is_missing() -> None:
    """The other tests of the window would not run without these libraries, so here they are present."""
    environment = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_library_is_listed_once() -> None:
    groups = json.loads((SCRIPT.parent.parent / "resources" / "qt_libraries.json").read_text())
    assert not groups["offscreen"].keys() & groups["screen"].keys()
