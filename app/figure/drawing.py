"""The process that draws: subjects are read, laid out where no display is, and written."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from app.figure.film_file import FilmFile, picture_of
from app.figure.note import Note
from app.figure.paper import write
from app.figure.show import RaceShow, RunShow, show_of
from app.figure.subject import Figure, Film, Subject
from app.figure.width import WIDTHS
from app.ui.look import style_sheet, theme
from engine.export import Source, citation, commands, made_by
from engine.jobs import LoadProgress
from engine.trace import Array

TRIED = 24  # moments of which an animation's colours are chosen
Report = Callable[[LoadProgress], None]


def read(subject: Subject, report: Report) -> Source:
    """What is in the subject's file, under the name that a person knows it by."""
    source = Source.read([Path(subject.file)], lambda done, total: report(LoadProgress("reading", done, total)))
    return replace(source, title=subject.title or source.title, file=subject.kept or source.file)


def note_of(source: Source) -> Note:
    return Note(source.title, "\n".join([*commands(source), "", citation(source)]), made_by())


@contextlib.contextmanager
def laid_out(show: RunShow | RaceShow) -> Iterator[RunShow | RaceShow]:
    """The widget as if it were on show."""
    show.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    show.show()
    try:
        yield show
    finally:
        show.close_down()
        show.close()
        show.deleteLater()


def prepare(light: bool, zoom: float = 1.0) -> None:
    """The application, dressed."""
    if QApplication.instance() is None:
        application = QApplication(sys.argv[:1])
        style_sheet.apply(application)
    theme.set_theme("light" if light else "dark")
    theme.set_zoom(zoom)


def drawn_figure(what: Figure, source: Source, path: Path) -> None:
    """Raises OSError."""
    prepare(light=True)
    width, look = WIDTHS[what.width], what.subject.look
    with laid_out(show_of(source, what.subject)) as show:
        show.pose(look)
        show.resize(width.design, width.tall or show.arrange(width.design))
        QApplication.sendPostedEvents()
        show.pose(look)  # words have found their room
        write(show, path, width, note_of(source))


def drawn_film(what: Film, source: Source, path: Path, report: Report) -> None:
    """Raises OSError, and InvalidInput where nothing can write it."""
    prepare(what.light, what.zoom)
    with laid_out(show_of(source, what.subject, told=True)) as show:
        show.arrange(what.size[0])
        show.setFixedSize(*what.size)
        show.fit(what.size[1])
        show.pose(what.subject.look)

        def moment(share: float) -> float:
            return inf if share >= 1 else share * show.span

        def picture(share: float) -> Array:
            show.go(moment(share))
            QApplication.sendPostedEvents()
            return picture_of(show)

        with FilmFile(path, what.size, what.fps, note_of(source)) as file:
            if file.wants_colors:
                file.choose_colors(picture((i + 1) / TRIED) for i in range(TRIED))
            for frame in range(what.frames):
                file.add(picture(what.share(frame)))
                report(LoadProgress("drawing", frame + 1, what.frames))
