"""What the window says of the engine's modes and files is, in English, what the engine says of them."""

from app.words import export_words, mode_words
from engine.config import MODES
from engine.export import KINDS


def test_modes_and_kinds_of_export_have_the_engines_words() -> None:
    assert {mode: mode_words(mode) for mode in MODES} == MODES
    assert {what: export_words(what) for what in KINDS} == {what: kind.words for what, kind in KINDS.items()}
