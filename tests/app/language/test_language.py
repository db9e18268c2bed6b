"""tr and trn: another language, its plurals, words that are missing, and catalogs that are what the sources say."""

import ast
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages import Catalog

from app import language
from app.language import digits, tr, trn
from app.stage.figures import PLACE
from app.stage.scene_file import read_tour, shipped_tour
from app.words import duration, number

sys.path.insert(0, str(Path(__file__).parents[3] / "packaging"))
import languages

ROOT = Path(__file__).resolve().parents[3]
OTHERS = [name for name in language.languages() if name != "en"]


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    yield
    language.speak(["en"])


@pytest.fixture(scope="module")
def said() -> Catalog:
    return languages.template()


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_without_a_catalog_words_are_english() -> None:
    language.speak(["xx-YY"])
    assert (language.spoken(), tr("Send"), tr("")) == ("en", "Send", "")
    assert trn("{count} block", "{count} blocks", 1) == "1 block"
    assert trn("{count:,} block {why}", "{count:,} blocks {why}", 2000, why="free") == "2,000 blocks free"
    assert tr("{left} of {all}", left="{x}", all=2) == "{x} of 2"


def test_the_first_language_that_is_there_is_spoken() -> None:
    language.speak(["xx", "de_AT", "en"])
    assert (language.spoken(), tr("Theme"), tr("never said {n}", n=1)) == ("de", "Farbschema", "never said 1")


def test_a_comma_never_parts_thousands_where_it_is_a_decimal_point() -> None:
    for spoken, apart in ((["en"], ","), (["de"], "\u202f")):
        language.speak(spoken)
        assert f"1{apart}234" in tr("{n:,} of {all:,} finished", n=1234, all=5678)
        assert f"12{apart}345" in trn("{count:,} stall", "{count:,} stalls", 12345)
        assert (number(5952.4), duration(6e4 * 1000)) == (f"5{apart}952", f"1{apart}000{apart}000 min 00 s")
        assert digits("1,234,567.5 ms, 12,34") == f"1{apart}234{apart}567.5 ms, 12,34"
        assert "9,999" in tr("“{text}”", text="9,999"), "what somebody wrote stays as it is"


@pytest.mark.parametrize("name", OTHERS)
def test_a_catalog_is_what_the_sources_say_and_its_compiled_form_is_it(name: str, said: Catalog) -> None:
    path = languages.catalog_path(name)
    kept = languages.updated(name, said)
    assert path.read_bytes() == languages.po_bytes(kept), "run: python packaging/languages.py"
    assert path.with_suffix(".mo").read_bytes() == languages.mo_bytes(kept), "run: python packaging/languages.py"


@pytest.mark.parametrize("name", OTHERS)
def test_every_message_is_translated_with_its_values(name: str) -> None:
    for message in languages.read(name):
        if not message.id:
            continue
        ids, found = ((each,) if isinstance(each, str) else tuple(each) for each in (message.id, message.string))
        assert all(found), f"not translated: {message.id}"
        for i, each in enumerate(found):  # one, many, and whatever other numbers the language has
            assert fields(ids[min(i, len(ids) - 1)]) <= fields(each) | {"count"}, message.id
            assert fields(each) <= set().union(*map(fields, ids)), message.id


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_is_said_of_a_shipped_scene_is_translated_with_its_figures(name: str) -> None:
    language.speak([name])
    scenes = *read_tour(), *read_tour(shipped_tour() / "shown")
    assert len(scenes) > 16
    catalog = languages.read(name)
    for scene in scenes:
        words = languages.words_of(scene)
        assert {scene.title, scene.caption, scene.question, scene.answer, scene.notes} <= set(words)
        assert {point.words for point in scene.points} <= set(words)
        for each in words:
            assert each in catalog, f"{scene.file.name}: {each}"
            found = language.shipped(each)
            assert found == catalog[each].string
            assert sorted(PLACE.findall(found)) == sorted(PLACE.findall(each)), each


def test_whatever_is_looked_up_is_a_literal() -> None:
    """What is put together at run time is in no catalog."""
    for path in (ROOT / "app").rglob("*.py"):
        if path.parent.name == "language":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tr", "trn"):
                texts = node.args[: 1 if node.func.id == "tr" else 2]
                literal = all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in texts)
                assert literal, f"{path.relative_to(ROOT)}:{node.lineno}"
