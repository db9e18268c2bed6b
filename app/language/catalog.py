"""The words of the window by language: catalogs of gettext, English where there is none or a word is missing."""

import gettext
from collections.abc import Sequence
from pathlib import Path

import resources

DOMAIN = "batchscope"
FOLDER = Path(resources.__file__).parent / "languages"
ENGLISH = "en"

_language = ENGLISH
_catalog = gettext.NullTranslations()


def tr(text: str, /, **values: object) -> str:
    """The text in the language that is spoken, with its {values} filled in: tr("{count} of {all}", count=3, all=8).

    `text` is a literal, whole sentences rather than parts: what is put together out of parts cannot be translated.
    Words are looked up when this is called: at import only in modules of the window, which are imported after `speak`.
    """
    found = _catalog.gettext(text) if text else ""
    return found.format(**values) if values else found


def trn(one: str, many: str, count: float, /, **values: object) -> str:
    """By number: trn("{count} block", "{count} blocks", blocks). {count} is there without being given."""
    return _catalog.ngettext(one, many, 1 if count == 1 else 2).format(**({"count": count} | values))


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
