"""The words of the window by language: catalogs of gettext, English where there is none or a word is missing."""

import gettext
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

import resources

DOMAIN = "batchscope"
FOLDER = Path(resources.__file__).parent / "languages"
ENGLISH = "en"
APART = "\u202f"  # between thousands, narrow and unbroken: elsewhere a comma stands for the decimal point
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

_language = ENGLISH
_catalog = gettext.NullTranslations()


def tr(text: str, /, **values: object) -> str:
    """The text in the language that is spoken, with its {values} filled in: tr("{count} of {all}", count=3, all=8).

    `text` is a literal, whole sentences rather than parts: what is put together out of parts cannot be translated.
    Words are looked up when this is called: at import only in modules of the window, which are imported after `speak`.
    """
    found = _catalog.gettext(text) if text else ""
    return _filled(found, values) if values else found


def trn(one: str, many: str, count: float, /, **values: object) -> str:
    """By number: trn("{count} block", "{count} blocks", blocks). {count} is there without being given."""
    return _filled(_catalog.ngettext(one, many, 1 if count == 1 else 2), {"count": count} | values)


def digits(figures: str) -> str:
    """Figures with their thousands apart as the language has them: "5,952 ms" stays so in English."""
    return figures if _language == ENGLISH else _THOUSANDS.sub(APART, figures)


class _Words(Formatter):
    """Of languages other than English."""

    def format_field(self, value: Any, spec: str) -> str:
        told = super().format_field(value, spec)
        return told.replace(",", APART) if "," in spec else told


_words = _Words()


def _filled(text: str, values: Mapping[str, object]) -> str:
    return text.format_map(values) if _language == ENGLISH else _words.vformat(text, (), values)


def shipped(text: str) -> str:
    """The words of a file that is shipped: of those that `packaging/languages.py` reads; others are as they were."""
    return _catalog.gettext(text) if text else ""


def languages() -> tuple[str, ...]:
    """English, and those with a catalog."""
    return (ENGLISH, *sorted(path.parts[-3] for path in FOLDER.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")))


def spoken() -> str:
    return _language


def speak(wanted: Sequence[str]) -> None:
    """The first of these ("de-AT", "de", ...) that there is; English otherwise."""
    global _language, _catalog
    there = languages()
    known = (name.replace("_", "-").partition("-")[0].lower() for name in wanted)
    _language = next((name for name in known if name in there), ENGLISH)
    _catalog = gettext.translation(DOMAIN, FOLDER, [_language], fallback=_language == ENGLISH)
