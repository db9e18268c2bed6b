"""Every setting there is, in the dialog's order."""

import os
from collections.abc import Sequence

from PySide6.QtCore import QLocale
from PySide6.QtGui import QFontDatabase

from app import preferences, storage
from app.desktop.settings.applied import CACHE, GIVEN, OFFLINE
from app.desktop.settings.setting import Choice, Choices, Folder, OnOff, Section, Setting, Whole
from app.language import languages, tr
from app.ui import theme
from engine.checkpoints import cache_folder

GB = 10**9
LIMITS = (0, *(count * GB for count in (1, 2, 5, 10, 20, 50, 100)))  # bytes of runs


def _fonts() -> Choices:
    fixed = [family for family in QFontDatabase.families() if QFontDatabase.isFixedPitch(family)]
    return [("as the system", ""), *((family, family) for family in fixed if not QFontDatabase.isPrivateFamily(family))]


def sections(pages: Sequence[str]) -> list[Section]:
    """`pages` are those of the window, by their names."""
    return [
        Section("Appearance", _appearance()),
        Section("Behaviour", _behaviour(pages)),
        Section("Runs", _runs()),
        Section("Hugging Face hub", _hub()),
        Section("Engine", _engine()),
        Section("Privacy", _privacy()),
    ]


def _appearance() -> list[Setting]:
    themes: Choices = [("as the system", "system"), ("dark", "dark"), ("light", "light")]
    zooms: Choices = [(f"{round(100 * zoom)} %", zoom) for zoom in theme.ZOOMS]
    motions: Choices = [("as the system", "system"), ("on", "on"), ("off", "off")]
    spoken: Choices = [
        ("as the system", "system"),
        *((QLocale(each).nativeLanguageName(), each) for each in languages()),
    ]
    return [
        Setting(preferences.LANGUAGE, tr("Language"), Choice(lambda: spoken), tr("From the next start on.")),
        Setting(preferences.THEME, tr("Theme"), Choice(lambda: themes)),
        Setting(preferences.ZOOM, "Zoom", Choice(lambda: zooms), "Ctrl + and Ctrl − do it too."),
        Setting(preferences.MOTION, "Motion", Choice(lambda: motions), "Off: nothing fades, glides or slides."),
        Setting(preferences.STREAM_FONT, "Font of the streams", Choice(_fonts)),
    ]


def _behaviour(pages: Sequence[str]) -> list[Setting]:
    shown: Choices = [("the last one", "last"), *((page, page) for page in pages)]
    models: Choices = [("the demo model", "demo"), ("the last one", "last"), ("none", "none")]
    named = "What batchscope --model names goes before this."
    keys: Choices = [("Ctrl Enter", "ctrl+enter"), ("Enter", "enter")]
    return [
        Setting(preferences.FIRST_PAGE, "Page at the start", Choice(lambda: shown)),
        Setting(preferences.FIRST_MODEL, "Model at the start", Choice(lambda: models), named),
        Setting(preferences.SEND_KEY, "Send with", Choice(lambda: keys), "With Enter, Shift Enter begins a line."),
    ]


def _runs() -> list[Setting]:
    limits: Choices = [(f"{size // GB} GB" if size else "no limit", size) for size in LIMITS]
    gone = "Beyond it, the oldest without a tag go when the Runs page is opened."
    stay = "Runs that are there stay where they are."
    return [
        Setting(preferences.RUNS_FOLDER, "Folder", Folder(lambda: str(storage.data() / "runs")), stay),
        Setting(preferences.RUNS_LIMIT, "Disk they may take", Choice(lambda: limits), gone),
    ]


def _hub() -> list[Setting]:
    def given(name: str) -> str:
        return f"The environment says so: {name}={GIVEN[name]}" if name in GIVEN else ""

    def folder() -> str:
        return str(cache_folder())

    asked = "The hub is not asked; models that are here can be loaded."
    return [
        Setting(preferences.HUB_FOLDER, "Downloads go to", Folder(folder), given=given(CACHE)),
        Setting(preferences.HUB_OFFLINE, "Stay offline", OnOff(), asked, given(OFFLINE)),
    ]


def _engine() -> list[Setting]:
    cores = os.cpu_count() or 1
    debug = "For debugging: an engine that dies then takes the window along. From the next load on."
    threads = "From the next load on."
    return [
        Setting(preferences.THREADS, "Threads on the CPU", Whole(0, cores, "measured at load"), threads),
        Setting(preferences.IN_PROCESS, "In the window's process", OnOff(), debug),
    ]


def _privacy() -> list[Setting]:
    prompts = "Ctrl ↑ brings them back. Off: those that are kept are forgotten."
    log = "In this machine's data folder, rotated at 1 MB. It holds neither prompts nor answers."
    return [
        Setting(preferences.KEEP_PROMPTS, "Remember sent prompts", OnOff(), prompts),
        Setting(preferences.KEEP_LOG, "Keep a log file", OnOff(), log),
    ]
