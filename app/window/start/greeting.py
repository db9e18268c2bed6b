"""What a start begins with: the welcome of the very first one, and the model that is loaded."""

from app import storage
from app.desktop.welcome import Way, Welcome
from app.language import tr
from app.preferences import FIRST_MODEL
from app.session.recent_models import last_loaded
from app.window.main_window import MainWindow
from engine import ModelSpec

WELCOMED = "window/welcomed"


def greet(window: MainWindow, first: bool = True) -> Welcome:
    """The welcome, for the menu; it shows itself at the very first start, unless something else is what was asked for:
    `first` is False."""
    page = window.page
    ways: list[Way] = [
        (
            tr("Take the tour"),
            tr("Twenty-two short scenes of real runs, from the KV cache to adapters."),
            window.touring.ask,
        ),
        (
            tr("Prompt the demo model"),
            tr("It tells small stories, 64 at once if you like."),
            page.composer.prompt.setFocus,
        ),
        (
            tr("Open my model …"),
            tr("A folder with a config.json; the Models page has the hub."),
            page.model.choose_folder,
        ),
    ]
    welcome = Welcome(window, ways, page.composer.prompt)
    window.window_actions.add_help(tr("Welcome"), welcome.open)
    if first and not storage.settings().value(WELCOMED):
        welcome.open()
    storage.settings().setValue(WELCOMED, True)
    return welcome


def first_model(spec: ModelSpec) -> ModelSpec | None:
    """What is loaded at a start that names no model: `spec`, the demo, where other options are given, which are its;
    else what was chosen."""
    if spec != ModelSpec():
        return spec
    match FIRST_MODEL.value:
        case "last":
            return last_loaded()
        case "none":
            return None
        case _:
            return spec
