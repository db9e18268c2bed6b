"""What the process that draws is asked for: a figure, or an animation, in the language of who asks.

That is chosen before the panels are imported: they look words up as they are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.figure.subject import figure_of, film_of
from app.language import speak
from engine.jobs import LoadProgress

Report = Callable[[LoadProgress], None]


def figure(told: dict[str, Any], report: Report) -> None:
    """A job."""
    speak([told["language"]])
    from app.figure.drawing import drawn_figure, read

    what = figure_of(told["figure"])
    drawn_figure(what, read(what.subject, report), Path(told["path"]))


def film(told: dict[str, Any], report: Report) -> None:
    """A job."""
    speak([told["language"]])
    from app.figure.drawing import drawn_film, read

    what = film_of(told["film"])
    drawn_film(what, read(what.subject, report), Path(told["path"]), report)
