"""Where nothing is to move, nothing does: lights jump, marks do not fade, panels do not slide."""

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.play.layout import PlayLayout, dock_host
from app.stage.spotlight import Spotlight
from app.ui.look.motion import moving, set_motion


@pytest.fixture(autouse=True)
def as_first() -> Iterator[None]:
    yield
    set_motion("system")


def test_a_light_glides_or_jumps_as_was_chosen(qtbot: QtBot) -> None:
    stage = QWidget()
    qtbot.addWidget(stage)
    stage.resize(600, 400)
    light, first, then = Spotlight(stage), QRect(10, 10, 200, 100), QRect(300, 200, 100, 100)
    set_motion("off")
    assert not moving()
    light.light(first)
    light.light(then)
    assert light.lit == then
    set_motion("on")
    light.light(first)
    assert light.lit != first
    qtbot.waitUntil(lambda: light.lit == first)


def test_panels_slide_or_jump_as_was_chosen(qtbot: QtBot) -> None:
    area = dock_host()
    qtbot.addWidget(area)
    layout = PlayLayout(area, {})
    for choice in ("on", "off", "on"):
        set_motion(choice)
        layout.follow_zoom()
        assert area.isAnimated() is (choice == "on")


def test_another_word_is_no_choice() -> None:
    with pytest.raises(ValueError, match="motion='slow'"):
        set_motion("slow")
