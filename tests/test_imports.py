"""What imports what, and when: the window's process never pays for torch, and no two files need each other."""

import ast
import importlib
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import engine

LIGHT = """
engine engine.trace engine.core engine.compare engine.checkpoints engine.quality engine.memory app.cli.doctor
engine.serving.server app.__main__ app.window.main_window app.models.page
""".split()


def test_what_the_windows_process_imports_needs_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, importlib\n"
        f"for name in {LIGHT!r}:\n"
        "    importlib.import_module(name)\n"
        "    print(name, *{'torch', 'transformers'} & set(sys.modules), sep=': ')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == LIGHT, done.stderr


def test_the_one_client_of_all_servers_imports_nothing_that_runs_a_model() -> None:
    program = (
        "import sys, engine.bench.serving.client, engine.bench.serving.beside\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_what_the_engine_offers_is_there_when_it_is_asked_for() -> None:
    (told,) = [node for node in ast.parse(Path(engine.__file__).read_text()).body if isinstance(node, ast.If)]
    offered = {
        (part.module, name.name) for part in told.body if isinstance(part, ast.ImportFrom) for name in part.names
    }
    assert ("engine.core", "Engine") in offered
    for package, name in offered:
        assert package is not None
        assert getattr(engine, name) is getattr(importlib.import_module(package), name)
    assert {name for _, name in offered} <= set(dir(engine))
    with pytest.raises(AttributeError, match="module 'engine' has no attribute 'Motor'"):
        engine.Motor  # noqa: B018


def test_a_child_that_asks_the_hub_imports_nothing_that_runs_a_model() -> None:
    """It is a new interpreter where the hub's settings are others than the process began with."""
    program = (
        "import sys, engine.jobs.job, engine.checkpoints.hub.resumable_download\n"
        "print({'numpy', 'asyncio', 'engine.core', 'engine.trace', 'engine.compare'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "set()", done.stderr


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


def test_no_two_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions, and those for types alone, count too."""
    graph = grimp.build_graph("engine", "app", cache_dir=None)
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()
