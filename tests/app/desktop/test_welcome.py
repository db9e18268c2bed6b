"""The welcome comes once, hinders nobody, and can be asked for again."""

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.preferences import FIRST_MODEL
from app.session.recent_models import RecentModels
from app.ui.look import theme
from app.window.main_window import MainWindow
from app.window.start.greeting import first_model, greet
from engine import ModelSpec


def test_it_comes_at_the_very_first_start_alone_and_typing_goes_to_the_prompt(qtbot: QtBot, window: MainWindow) -> None:
    welcome, prompt = greet(window), window.page.composer.prompt
    assert welcome.isVisible()
    assert window.rect().contains(welcome.geometry())
    prompt.setPlainText("")
    assert window.focusWidget() is welcome.ways[0]
    qtbot.keyClicks(window.focusWidget(), "H")
    assert not welcome.isVisible()
    assert prompt.toPlainText() == "H"
    assert window.focusWidget() is prompt
    assert not greet(window).isVisible()
    (again, *_) = [action for action in window.window_actions.help.actions() if action.text() == "Welcome"]
    again.trigger()
    assert welcome.isVisible()
    qtbot.keyClick(welcome.ways[1], Qt.Key.Key_Escape)
    assert not welcome.isVisible()
    welcome.open()
    qtbot.keyClick(welcome.ways[1], Qt.Key.Key_Space)
    assert not welcome.isVisible()
    assert window.focusWidget() is prompt
    welcome.open()
    window.page.model.load.setFocus()
    assert not welcome.isVisible(), "who goes on elsewhere needs it no more"


@pytest.mark.parametrize("zoom", [1.0, 1.5, 2.0])
def test_it_fits_a_projector(qtbot: QtBot, window: MainWindow, zoom: float) -> None:
    window.resize(1280, 720)
    theme.set_zoom(zoom)
    welcome = greet(window)
    assert window.rect().contains(welcome.geometry())
    assert all(welcome.rect().contains(way.geometry()) for way in (*welcome.ways, welcome.close_button))


def test_a_start_loads_what_was_chosen(qtbot: QtBot) -> None:
    plain, given = ModelSpec(), ModelSpec(adapters=("pirate",))
    assert first_model(plain) == plain
    FIRST_MODEL.set("last")
    assert first_model(plain) == plain
    RecentModels().add(ModelSpec("demo", "nf4"))
    assert first_model(plain) == ModelSpec("demo", "nf4")
    assert first_model(given) == given, "an adapter, or another option, is the demo's"
    FIRST_MODEL.set("none")
    assert first_model(plain) is None
    assert first_model(given) == given
