"""Every setting there is, in the dialog's order."""

import os
from collections.abc import Mapping

from PySide6.QtCore import QLocale
from PySide6.QtGui import QFontDatabase

from app import preferences, storage
from app.desktop.settings.applied import CACHE, GIVEN, OFFLINE
from app.desktop.settings.setting import Choice, Choices, Folder, OnOff, Section, Setting, Whole
from app.language import languages, tr
from app.ui.look import theme
from engine.checkpoints import cache_folder

GB = 10**9
LIMITS = (0, *(count * GB for count in (1, 2, 5, 10, 20, 50, 100)))  # bytes of runs


def _fonts() -> Choices:
    fixed = [family for family in QFontDatabase.families() if QFontDatabase.isFixedPitch(family)]
    return [
        (tr("as the system"), ""),
        *((family, family) for family in fixed if not QFontDatabase.isPrivateFamily(family)),
    ]


def sections(pages: Mapping[str, str]) -> list[Section]:
    """`pages` are the titles of the window's, by the names that settings keep."""
    return [
        Section(tr("Appearance"), _appearance()),
        Section(tr("Behaviour"), _behaviour(pages)),
        Section(tr("Runs"), _runs()),
        Section(tr("Hugging Face hub"), _hub()),
        Section(tr("Engine"), _engine()),
        Section(tr("Privacy"), _privacy()),
    ]


def _appearance() -> list[Setting]:
    themes: Choices = [(tr("as the system"), "system"), (tr("dark"), "dark"), (tr("light"), "light")]
    zooms: Choices = [(f"{round(100 * zoom)} %", zoom) for zoom in theme.ZOOMS]
    motions: Choices = [(tr("as the system"), "system"), (tr("on"), "on"), (tr("off"), "off")]
    named = ((QLocale(each).nativeLanguageName(), each) for each in languages())
    spoken: Choices = [(tr("as the system"), "system"), *named]
    return [
        Setting(preferences.LANGUAGE, tr("Language"), Choice(lambda: spoken), tr("From the next start on.")),
        Setting(preferences.THEME, tr("Theme"), Choice(lambda: themes)),
        Setting(preferences.ZOOM, tr("Zoom"), Choice(lambda: zooms), tr("Ctrl + and Ctrl − do it too.")),
        Setting(preferences.MOTION, tr("Motion"), Choice(lambda: motions), tr("Off: nothing fades, glides or slides.")),
        Setting(preferences.STREAM_FONT, tr("Font of the streams"), Choice(_fonts)),
    ]


def _behaviour(pages: Mapping[str, str]) -> list[Setting]:
    shown: Choices = [(tr("the last one"), "last"), *((title, name) for name, title in pages.items())]
    models: Choices = [(tr("the demo model"), "demo"), (tr("the last one"), "last"), (tr("none"), "none")]
    named = tr("What batchscope --model names goes before this.")
    keys: Choices = [(tr("Ctrl Enter"), "ctrl+enter"), (tr("Enter"), "enter")]
    return [
        Setting(preferences.FIRST_PAGE, tr("Page at the start"), Choice(lambda: shown)),
        Setting(preferences.FIRST_MODEL, tr("Model at the start"), Choice(lambda: models), named),
        Setting(
            preferences.SEND_KEY, tr("Send with"), Choice(lambda: keys), tr("With Enter, Shift Enter begins a line.")
        ),
    ]


def _runs() -> list[Setting]:
    limits: Choices = [(f"{size // GB} GB" if size else tr("no limit"), size) for size in LIMITS]
    gone = tr("Beyond it, the oldest without a tag go when the Runs page is opened.")
    stay = tr("Runs that are there stay where they are.")
    return [
        Setting(preferences.RUNS_FOLDER, tr("Folder"), Folder(lambda: str(storage.data() / "runs")), stay),
        Setting(preferences.RUNS_LIMIT, tr("Disk they may take"), Choice(lambda: limits), gone),
    ]


def _hub() -> list[Setting]:
    def given(name: str) -> str:
        return tr("The environment says so: {name}={value}", name=name, value=GIVEN[name]) if name in GIVEN else ""

    def folder() -> str:
        return str(cache_folder())

    asked = tr("The hub is not asked; models that are here can be loaded.")
    return [
        Setting(preferences.HUB_FOLDER, tr("Downloads go to"), Folder(folder), given=given(CACHE)),
        Setting(preferences.HUB_OFFLINE, tr("Stay offline"), OnOff(), asked, given(OFFLINE)),
    ]


def _engine() -> list[Setting]:
    cores = os.cpu_count() or 1
    debug = tr("For debugging: an engine that dies then takes the window along. From the next load on.")
    threads = tr("From the next load on.")
    return [
        Setting(preferences.THREADS, tr("Threads on the CPU"), Whole(0, cores, tr("measured at load")), threads),
        Setting(preferences.IN_PROCESS, tr("In the window's process"), OnOff(), debug),
    ]


def _privacy() -> list[Setting]:
    prompts = tr("Ctrl ↑ brings them back. Off: those that are kept are forgotten.")
    log = tr("In this machine's data folder, rotated at 1 MB. It holds neither prompts nor answers.")
    return [
        Setting(preferences.KEEP_PROMPTS, tr("Remember sent prompts"), OnOff(), prompts),
        Setting(preferences.KEEP_LOG, tr("Keep a log file"), OnOff(), log),
    ]
