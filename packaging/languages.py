"""The window's words for translators: `python packaging/languages.py` brings every catalog up to date with the sources.

A language begins with `python packaging/languages.py --add fr`. In resources/languages/fr/LC_MESSAGES/batchscope.po
stands what to translate; running this again compiles it. Words that are gone from the sources go from the catalogs."""

import argparse
import ast
import io
import sys
import tomllib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import babel.messages.catalog
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from app.language import DOMAIN, FOLDER
from app.stage.scene import Scene, in_words
from app.stage.scene_file import read_tour, shipped_tour
from engine.compare import parse_lane

ROOT = Path(__file__).resolve().parents[1]
KEYWORDS = {"tr": None, "trn": (1, 2)}
babel.messages.catalog.VERSION = "2"  # which catalogs name: they are the same whichever release of it writes them
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)  # of every catalog: the history tells when it changed


def said_in(
    file: BinaryIO, keywords: Collection[str], comment_tags: object, options: object
) -> Iterator[tuple[int, str, list[str], list[str]]]:
    """What Babel asks of an extraction: Babel's own finds nothing within f-strings before Python 3.12."""
    for node in ast.walk(ast.parse(file.read())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in keywords:
            literals = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield node.lineno, node.func.id, [each for each in literals if isinstance(each, str)], []


def template() -> Catalog:
    """What is said in the sources, and in shipped workloads and scenes, by the file it is said in."""
    found = Catalog(project="Batchscope", creation_date=LONG_AGO, revision_date=LONG_AGO, fuzzy=False)
    for name, _, said, notes, context in extract_from_dir(ROOT / "app", [("**.py", said_in)], keywords=KEYWORDS):
        found.add(said, locations=[(f"app/{name}", 0)], auto_comments=notes, context=context)
    resources = ROOT / "resources"
    for path in sorted((*resources.glob("workloads/*.toml"), *resources.glob("scenes/workloads/*.toml"))):
        told = tomllib.loads(path.read_text())
        for said in (told["title"], told["description"]):
            found.add(said, locations=[(path.relative_to(ROOT).as_posix(), 0)])
    for folder in (shipped_tour(), shipped_tour() / "shown"):
        for scene in read_tour(folder):
            for said in words_of(scene):
                found.add(said, locations=[(scene.file.relative_to(ROOT).as_posix(), 0)])
    return found


def words_of(scene: Scene) -> list[str]:
    """All that is said of a scene, and its lanes' headings."""
    said: list[str] = []

    def hear(words: str) -> str:
        said.append(words)
        return words

    in_words(scene, hear)
    return list(filter(None, (*said, *(parse_lane(lane).name for lane in scene.lanes))))


def catalog_path(language: str) -> Path:
    return FOLDER / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def read(language: str) -> Catalog:
    with open(catalog_path(language), "rb") as file:
        return read_po(file, locale=language, domain=DOMAIN)


def updated(language: str, said: Catalog) -> Catalog:
    """The catalog with the words of the sources: those that it lacks are empty."""
    path = catalog_path(language)
    catalog = read(language) if path.exists() else Catalog(locale=language, fuzzy=False)
    catalog.update(said, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    catalog.creation_date = catalog.revision_date = LONG_AGO
    return catalog


def po_bytes(catalog: Catalog) -> bytes:
    file = io.BytesIO()
    write_po(file, catalog, width=120, sort_output=True, include_lineno=False, omit_header=False)
    return file.getvalue()


def mo_bytes(catalog: Catalog) -> bytes:
    file = io.BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--add", default="", metavar="LANGUAGE", help="begin a new one, e.g. fr")
    asked = options.parse_args()
    said = template()
    present = {path.parts[-3] for path in FOLDER.glob(f"*/LC_MESSAGES/{DOMAIN}.po")}
    for language in sorted(present | ({asked.add} if asked.add else set())):
        path = catalog_path(language)
        path.parent.mkdir(parents=True, exist_ok=True)
        catalog = updated(language, said)
        path.write_bytes(po_bytes(catalog))
        path.with_suffix(".mo").write_bytes(mo_bytes(catalog))
        missing = sum(not (any(each.string) if each.pluralizable else each.string) for each in catalog if each.id)
        print(f"{language}: {len(catalog)} messages, {missing} not translated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
