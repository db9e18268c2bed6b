"""What is imported when: the window's process never pays for torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def modules_after(statement: str) -> set[str]:
    """The names of all modules in a fresh interpreter that ran `statement`."""
    program = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "engine",
        "engine.config.specs",
        "engine.trace",
        "engine.core.process",
        "engine.workloads.workload",
        "engine.checkpoints.inspect",
        "app.cli.doctor",
        "app.__main__",
    ],
)
def test_importing_a_light_module_imports_neither_torch_nor_transformers(module: str) -> None:
    assert not {"torch", "transformers"} & modules_after(f"import {module}")


def test_the_window_is_imported_without_torch() -> None:
    assert "torch" not in modules_after("import engine, app.window.main_window")


def test_the_engine_is_imported_without_qt() -> None:
    imported = modules_after("import engine; engine.Engine")
    assert "torch" in imported
    assert not {"PySide6", "pyqtgraph", "qasync", "app"} & imported


def test_resources_are_found_from_any_folder(tmp_path: Path) -> None:
    program = "import resources; print(resources.path('icons/batchscope.svg').is_file())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "True"
