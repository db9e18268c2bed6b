"""The window in a language that there is not, in a process of its own: prints whatever can be read in it, as JSON.

A catalog is made of the sources' messages, every letter of theirs accented; what is printed without an accent has been
through no catalog. `python -m tests.app.language.pseudo_window FOLDER`: what the window keeps goes there."""

import asyncio
import html
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

LANGUAGE = "qaa"  # reserved by ISO 639 for who needs one of his own
ACCENTED = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "áƀćďéƒǵĥíĵķĺḿńóṕɋŕśťúṽŵẋýźÁƁĆĎÉƑǴĤÍĴĶĹḾŃÓṔɊŔŚŤÚṼŴẊÝŹ"
)
SIZE, LARGE = (1280, 720), (1900, 1300)
RUN, RACES = "22-beams.bsrun", ("09-fragmentation.bsrace", "23-speculation.bsrace")  # recordings of the tour's


def accented(message: str) -> str:
    """The message in the language; its {values} are as they were."""
    return "".join(
        part if part.startswith("{") else part.translate(ACCENTED) for part in re.split(r"(\{[^}]*\})", message)
    )


def write_catalog(folder: Path) -> None:
    """Of all that the sources say, where gettext looks for it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "packaging"))
    import languages
    from babel.messages import Catalog

    from app.language import DOMAIN

    catalog = Catalog(locale="de", fuzzy=False)  # for its plurals: one, and many
    for message in languages.template():
        if message.id:
            several = isinstance(message.id, tuple)
            catalog.add(message.id, tuple(map(accented, message.id)) if several else accented(message.id))
    path = folder / LANGUAGE / "LC_MESSAGES" / f"{DOMAIN}.mo"
    path.parent.mkdir(parents=True)
    path.write_bytes(languages.mo_bytes(catalog))


def speak_it(folder: Path) -> None:
    """The window chooses it as it chooses every other: by what was set."""
    from app import storage
    from app.language import catalog
    from app.preferences import LANGUAGE as CHOSEN

    write_catalog(folder / "languages")
    catalog.FOLDER = folder / "languages"
    storage.settings().setValue(CHOSEN.key, LANGUAGE)
    import_module("app.window")  # which chooses it
    assert catalog.spoken() == LANGUAGE


async def look() -> list[list[str]]:
    """Page after page, then the dialogs: (room, class, name, what of it, the text)."""
    from PySide6.QtWidgets import QApplication, QDialog

    from app.inside.insights import INSIGHTS
    from app.stage.scene_file import shipped_tour
    from app.window.main_window import PLAY
    from app.window.start.application import unattended_window, until
    from app.window.start.greeting import greet
    from engine import EngineConfig, load_trace

    read: dict[tuple[str, ...], None] = {}

    async def take_in() -> None:
        await asyncio.sleep(0.1)
        read.update(dict.fromkeys(readable(window)))

    async with unattended_window(SIZE) as window:
        window.start(None, EngineConfig())
        assert await until(lambda: "live" in window.page.docks, 20)
        welcome = greet(window)
        await take_in()
        welcome.dismiss()
        for place in range(window.pages.count()):
            window.show_page(place)
            await take_in()
        window.window_actions.search()
        await take_in()
        openers = window.window_actions.show_settings, window.window_actions.help.actions()[0].trigger
        for opened in openers:
            opened()
            await take_in()
            for dialog in window.findChildren(QDialog):
                dialog.close()
            QApplication.processEvents()
        runs = shipped_tour() / "runs"
        trace = load_trace(runs / RUN)
        window.resize(*LARGE)
        window.show_page(PLAY)
        window.page.model.bill.show_loaded(trace.header)
        window.page.layout_of.everything()
        window.runs.show(trace, runs / RUN)
        window.runs.close()
        window.bridge.show(trace)
        await until(lambda: not window.bridge.behind, 20)
        for moment in (None, window.bridge.scope.origin + 0.4 * (window.bridge.scope.end - window.bridge.scope.origin)):
            if moment is not None:
                window.bridge.scope.seek(moment)
            window.bridge.scope.catch_up()
            window.page.charts.refresh()
            await take_in()
        for race in RACES:
            window.open_path(runs / race)
            compare = window.compare
            assert compare is not None
            assert await until(partial(shown, compare.race, runs / race), 20)
            for insight in (None, *INSIGHTS):
                compare.replay.view.setCurrentIndex(max(0, compare.replay.view.findData(insight)))
                for view in compare.views:
                    view.lane.scope.catch_up()
                await take_in()
    return [list(each) for each in read]


def shown(race: Any, file: Path) -> bool:
    """Whether this race is on show, whole."""
    return race.file == file and race.report is not None


def readable(window: object) -> Iterator[tuple[str, ...]]:
    """Of every widget and every action that there is now."""
    from PySide6.QtGui import QAction
    from PySide6.QtWidgets import QWidget

    assert isinstance(window, QWidget)
    for widget in (window, *window.findChildren(QWidget)):
        for what, text in (*texts_of(widget), *(("painted", text) for text in painted(widget))):
            if text.strip():
                yield room_of(widget), type(widget).__name__, widget.objectName(), what, text
    for action in window.findChildren(QAction):
        for what in ("text", "toolTip"):
            if text := getattr(action, what)().replace("&", ""):
                yield room_of(action), "QAction", action.objectName(), what, text


def room_of(thing: object) -> str:
    """Whose it is: the package of the first class around it that is not one of the controls that all have."""
    from PySide6.QtCore import QObject

    while isinstance(thing, QObject):
        module = type(thing).__module__
        if module.startswith("app.") and not module.startswith(("app.ui.", "app.plot.")):
            return ".".join(module.split(".")[:2])
        thing = thing.parent()
    return ""


def texts_of(widget: object) -> Iterator[tuple[str, str]]:
    from PySide6.QtCore import Qt
    from PySide6.QtWidgets import (
        QAbstractButton,
        QAbstractSpinBox,
        QComboBox,
        QHeaderView,
        QLabel,
        QLineEdit,
        QMenu,
        QPlainTextEdit,
        QSpinBox,
        QTabBar,
        QWidget,
    )

    assert isinstance(widget, QWidget)
    for what in ("windowTitle", "toolTip", "accessibleName", "accessibleDescription"):
        yield what, getattr(widget, what)()
    match widget:
        case QLabel() | QAbstractButton():
            yield "text", widget.text()
        case QLineEdit() | QPlainTextEdit():
            yield "placeholderText", widget.placeholderText()
        case QComboBox():
            for i in range(widget.count()):
                yield "item", widget.itemText(i)
                yield "item's tip", str(widget.itemData(i, Qt.ItemDataRole.ToolTipRole) or "")
        case QSpinBox():
            yield "prefix", widget.prefix()
            yield "suffix", widget.suffix()
            yield "least", widget.specialValueText()
        case QAbstractSpinBox():
            yield "text", widget.text()
        case QMenu():
            yield "title", widget.title()
        case QTabBar():
            for i in range(widget.count()):
                yield "tab", widget.tabText(i)
        case QHeaderView() if widget.orientation() is Qt.Orientation.Horizontal and widget.model() is not None:
            for i in range(widget.count()):
                for role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
                    yield "heading", str(widget.model().headerData(i, widget.orientation(), role) or "")


def painted(widget: object) -> Iterator[str]:
    """What a widget that draws itself has drawn, without its children's."""
    from PySide6.QtCore import QBuffer, QPoint, QRect
    from PySide6.QtGui import QPainter, QRegion
    from PySide6.QtSvg import QSvgGenerator
    from PySide6.QtWidgets import QWidget

    from app.ui.painted import Painted

    if not isinstance(widget, Painted) or not widget.isVisible() or widget.size().isEmpty():
        return
    generator, buffer = QSvgGenerator(), QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    generator.setOutputDevice(buffer)
    generator.setSize(widget.size())
    generator.setViewBox(QRect(QPoint(), widget.size()))
    painter = QPainter(generator)
    widget.render(painter, QPoint(), QRegion(), QWidget.RenderFlag(0))
    painter.end()
    for found in re.findall(r"<text[^>]*>(.*?)</text>", bytes(buffer.data().data()).decode(), re.S):
        yield html.unescape(" ".join(found.split()))


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ |= {"BATCHSCOPE_DATA": str(folder / "data"), "QT_QPA_PLATFORM": "offscreen", "HF_HUB_OFFLINE": "1"}
    (folder / "data").mkdir(parents=True)
    speak_it(folder)
    import qasync

    from app.window.start.application import make_application

    make_application()
    print(json.dumps(qasync.run(look())))


if __name__ == "__main__":
    main()
