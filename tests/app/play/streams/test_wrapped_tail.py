import random

import pytest
from PySide6.QtGui import QFontMetricsF
from pytestqt.qtbot import QtBot

from app.play.streams.wrapped_tail import KEPT, WrappedTail, wrap_columns, wrap_shaped
from app.ui.look import theme


def lines_of(text: str, columns: int) -> list[str]:
    return [text[a:b] for a, b in wrap_columns(text, 0, columns)]


def test_lines_are_cut_at_spaces_and_none_is_too_long() -> None:
    text = "the lantern was lost behind the old mill and everyone laughed"
    lines = lines_of(text, 16)
    assert lines == ["the lantern was", "lost behind the", "old mill and", "everyone laughed"]


def test_a_word_longer_than_the_line_is_cut() -> None:
    assert lines_of("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_no_character_but_the_spaces_and_newlines_at_cuts_is_lost() -> None:
    rng = random.Random(1)
    for _ in range(200):
        text = "".join(rng.choice("ab  \nc") for _ in range(rng.randint(0, 80)))
        joined = "".join(lines_of(text, 7))
        assert joined.replace(" ", "") == text.replace("\n", "").replace(" ", "")


def test_text_that_grows_wraps_as_if_it_had_come_at_once(qtbot: QtBot) -> None:
    rng, font = random.Random(2), theme.mono()
    width = 30 * QFontMetricsF(font).horizontalAdvance("0")
    words = ["fox", "lantern", "é", "龍", "and\n", "🦊🦉", "everything", "it"]
    for _ in range(20):
        grown, text = WrappedTail(font, width), ""
        for _ in range(60):
            text += rng.choice(words) + " "
            lines = grown.update(text)
        if text.isascii():
            assert lines == WrappedTail(font, width).update(text)
        assert "".join(lines).replace(" ", "") == text.replace("\n", "").replace(" ", "")


def test_lines_above_the_last_stay_where_they_are(qtbot: QtBot) -> None:
    tail, text, before = WrappedTail(theme.mono(), 200), "", []
    for i in range(200):
        text += f"word{i} "
        lines = tail.update(text)
        if before and lines[: len(before) - 1] != before[:-1]:
            assert len(before) >= KEPT  # only when old lines are let go
        before = list(lines)


def test_a_long_text_met_late_shows_its_end(qtbot: QtBot) -> None:
    text = " ".join(f"word{i}" for i in range(20_000))
    lines = WrappedTail(theme.mono(), 240).update(text)
    assert len(lines) <= KEPT + 1
    assert lines[-1].endswith("word19999")


def test_a_moment_before_shows_what_was_there(qtbot: QtBot) -> None:
    tail, text = WrappedTail(theme.mono(), 200), "Once upon a time a fox\nfound a kite in the old mill"
    for length in (len(text), 9, 0, 23, 0, 4, len(text)):
        assert tail.update(text[:length]) == WrappedTail(theme.mono(), 200).update(text[:length])


@pytest.mark.parametrize("text", ["狐狸和灯笼" * 30, "нет мельницы " * 20, "🦊" * 60, "مرحبا بالعالم " * 20])
def test_any_script_fits_the_width(qtbot: QtBot, text: str) -> None:
    font, width = theme.mono(), 220.0
    spans = wrap_shaped(text, 0, font, width)
    assert len(spans) > 1
    assert "".join(text[a:b] for a, b in spans) == text
    metrics = QFontMetricsF(font)
    assert all(metrics.horizontalAdvance(text[a:b].rstrip()) <= width + 1 for a, b in spans)
