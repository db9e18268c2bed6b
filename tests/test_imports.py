"""What imports what, and when: the window's process never pays for torch, and no two files need each other."""

import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

LIGHT = """
engine engine.trace engine.core engine.compare engine.checkpoints engine.quality engine.memory app.cli.doctor
app.__main__ app.window.main_window app.models.page
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
