"""The table of model types that are served says what the loader would say, without importing transformers."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from transformers import CONFIG_MAPPING

from engine.checkpoints import architectures
from engine.checkpoints.architectures import REASONS, TABLE, known_here, why_unsupported
from tests.engine.tiny_models import TINY_MODELS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architectures_table", ROOT / "packaging/architectures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_installed_transformers_gives(maker: ModuleType) -> None:
    """Both ways, but for types that one of the two versions lacks."""
    table = json.loads(TABLE.read_text())
    found = maker.verdicts()
    told = dict.fromkeys(table["served"], "served")
    told |= {kind: reason for reason, kinds in table["refused"].items() for kind in kinds}
    now = {kind: reason for reason, kinds in found.items() for kind in kinds}
    both = told.keys() & now.keys()
    assert len(both) > 150
    assert {kind: told[kind] for kind in both} == {kind: now[kind] for kind in both}
    if table["transformers"] == maker.transformers.__version__:
        assert told == now


def test_every_reason_is_one_that_has_words() -> None:
    assert set(json.loads(TABLE.read_text())["refused"]) <= set(REASONS)


def test_tiny_models_that_load_are_served() -> None:
    for name, tiny in TINY_MODELS.items():
        assert why_unsupported(tiny.config().model_type) == "", name


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("bloom", "does not use transformers' attention interface"),
        ("bert", "fills gaps and does not generate text"),
        ("deepseek_v32", "indexer"),
        ("mamba", "layers that keep neither ordinary keys and values nor a state"),
        ("t5", "is not a decoder that generates text"),
    ],
)
def test_a_type_that_is_not_served_is_told_why_and_what_to_choose(kind: str, words: str) -> None:
    reason = why_unsupported(kind)
    assert reason.startswith(f"model type {kind!r} ")
    assert words in reason
    assert "choose" in reason


def test_a_type_that_transformers_does_not_have_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not know model type 'frobnicator'" in why_unsupported("frobnicator")
    monkeypatch.setattr(architectures, "_installed_types", lambda: frozenset({"llama"}))
    assert why_unsupported("llama") == ""
    assert "does not know model type 'qwen3'" in why_unsupported("qwen3")  # an older transformers
    assert "does not know model type 'new_one'" in why_unsupported("new_one")


def test_what_is_known_here_is_what_transformers_knows() -> None:
    assert all(known_here(kind) for kind in CONFIG_MAPPING)


def test_asking_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from engine.checkpoints import why_unsupported\n"
        "why_unsupported('llama'); why_unsupported('nonsense')\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert told.stdout.strip() == "[]"
