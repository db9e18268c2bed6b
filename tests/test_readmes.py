"""What the READMEs name exists: every path, command, option, module and make target."""

import argparse
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.__main__ import parser

ROOT = Path(__file__).parents[1]
READMES = sorted(p for folder in ("app", "engine") for p in (ROOT / folder).rglob("README.md")) + [ROOT / "README.md"]
PATH = re.compile(r"[\w.-]*/[\w./-]*|[\w-]+\.(?:py|json|toml|md)")
LONGEST = 220  # lines of the first one: two screens and a tour


def text_of(readme: Path) -> str:
    return readme.read_text(encoding="utf-8")


def code(text: str) -> list[str]:
    """What is set as code: spans, and the lines of blocks without their comments."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return spans + [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]


def commands() -> dict[str, set[str]]:
    """The options of each command of `batchscope`, "" for the window."""
    top = parser()
    subparsers = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    return {name: set(p._option_string_actions) for name, p in {"": top, **subparsers.choices}.items()}


@pytest.mark.parametrize("readme", READMES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_and_picture_is_there(readme: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", text_of(readme)):
        assert (readme.parent / target).exists(), target


@pytest.mark.parametrize("readme", READMES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_is_there(readme: Path) -> None:
    for span in code(text_of(readme)):
        if PATH.fullmatch(span) and re.search(r"[a-z]", span):
            below = readme.parent.rglob(span) if "/" not in span else ()
            assert (ROOT / span).exists() or (readme.parent / span).exists() or any(below), span


@pytest.mark.parametrize("readme", READMES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_option_and_module_is_there(readme: Path) -> None:
    known = commands()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    for line in code(text_of(readme)):
        match line.split():
            case ["batchscope", *rest]:
                name = rest[0] if rest and re.fullmatch(r"[a-z]+", rest[0]) else ""
                assert name in known, line
                assert set(re.findall(r"--[a-z][\w-]*", line)) <= known[name], line
            case ["make", target, *_]:
                assert target in targets, line
            case ["python", "-m", module, *_]:
                assert find_spec(module) is not None, line
            case ["python", script, *_] if script.endswith(".py"):
                assert (ROOT / script).exists(), line


def test_the_first_one_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= LONGEST


def test_every_option_that_is_named_belongs_to_some_command() -> None:
    known = set().union(*commands().values()) | {
        "--only",
        "--rehearsal",
        "--matrix",
        "--baselines",
        "--group",
        "--no-deps",
    }  # those of the GPU bench, of `make kernels`, of `packaging/` and of pip
    for readme in READMES:
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", text_of(readme)):
            assert option in known, (readme, option)
