"""The dialog over the real autoawq, with one layer of the demo model."""

import importlib.util
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

import resources
from app.quality.quantize_dialog import QuantizeDialog
from app.quality.recipe_check import suggested_folder
from app.session.session import Session
from app.window.main_window import MODELS, MainWindow
from engine import ModelSpec
from engine.checkpoints import inspect_model

WAIT = 90_000
needs_autoawq = pytest.mark.skipif(importlib.util.find_spec("awq") is None, reason="autoawq is not installed")


def one_layer(folder: Path) -> Path:
    """The demo model without all but its first layer."""
    demo = resources.path("models/stories-5m")
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        if (demo / name).exists():
            shutil.copy(demo / name, folder)
    config = json.loads((demo / "config.json").read_text())
    for key in [key for key, value in config.items() if isinstance(value, list) and len(value) == 6]:
        config[key] = config[key][:1]
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    whole = (demo / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header, kept, body = json.loads(whole[8 : 8 + length]), {}, b""
    for name, entry in header.items():
        if name == "__metadata__":
            kept[name] = entry
        elif ".layers." not in name or ".layers.0." in name:
            begin, end = entry["data_offsets"]
            kept[name] = {**entry, "data_offsets": [len(body), len(body) + end - begin]}
            body += whole[8 + length + begin : 8 + length + end]
    head = json.dumps(kept).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    return folder


@pytest.fixture
def dialog(qtbot: QtBot, session: Session, tmp_path: Path) -> Iterator[QuantizeDialog]:
    """Of a model with one layer, and little calibration."""
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    dialog = QuantizeDialog(window, session, ModelSpec(str(one_layer(tmp_path / "small"))))
    dialog.samples.setValue(16)
    dialog.length.setValue(32)
    dialog.open()
    yield dialog
    if not dialog._gone:
        dialog.work.cancel()
        qtbot.waitUntil(lambda: not dialog.work.running, timeout=WAIT)
        dialog.reject()


def settled(qtbot: QtBot, dialog: QuantizeDialog) -> None:
    qtbot.waitUntil(lambda: dialog._settled, timeout=WAIT)


@needs_autoawq
def test_what_it_takes_is_told_before_it_begins(qtbot: QtBot, dialog: QuantizeDialog, own_settings: Path) -> None:
    settled(qtbot, dialog)
    assert dialog.out.text() == str(own_settings / "models" / "small-awq")
    assert dialog.calibration.text() == "prose", "another's model is not calibrated with the demo's stories"
    assert "characters, ~" in dialog.calibration_facts.text()
    assert "at most 512 of them are used" in dialog.calibration_facts.text()
    assert "on disk, where the original takes" in dialog.bill.text()
    assert dialog.begin.isEnabled()
    assert not dialog.error.isVisible()


@needs_autoawq
def test_mistakes_are_told_as_they_are_made(qtbot: QtBot, dialog: QuantizeDialog, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    dialog.out.setText(str(full))
    assert not dialog.begin.isEnabled(), "nothing begins before it was looked at"
    settled(qtbot, dialog)
    assert "not empty" in dialog.error.text()
    assert not dialog.begin.isEnabled()
    dialog.out.setText(str(tmp_path / "new"))
    settled(qtbot, dialog)
    assert dialog.begin.isEnabled()
    dialog.samples.setValue(1)
    dialog.length.setValue(4096)
    settled(qtbot, dialog)
    assert "smaller length" in dialog.error.text()
    short = tmp_path / "no.txt"
    dialog.calibration.choose(str(short))
    settled(qtbot, dialog)
    assert "cannot read the text" in dialog.error.text().lower()
    assert not dialog.calibration_facts.isVisible()


@needs_autoawq
def test_a_group_that_does_not_divide_the_model_gives_way_unless_it_was_chosen(
    qtbot: QtBot, dialog: QuantizeDialog, tmp_path: Path
) -> None:
    settled(qtbot, dialog)
    assert dialog.group.currentData() == 128
    dialog.group.setCurrentIndex(dialog.group.findData(32))
    dialog.group.activated.emit(dialog.group.currentIndex())
    settled(qtbot, dialog)
    assert dialog.group.currentData() == 32, "a person's own choice stays"
    assert dialog.begin.isEnabled()


def test_where_autoawq_is_missing_the_dialog_says_what_to_install(
    qtbot: QtBot, dialog: QuantizeDialog, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "engine.quality.awq_recipe.find_spec", lambda name, *rest: None if name == "awq" else find(name, *rest)
    )
    dialog.samples.setValue(17)
    settled(qtbot, dialog)
    assert "pip install 'batchscope[awq]'" in dialog.error.text()
    assert not dialog.begin.isEnabled()


@needs_autoawq
def test_a_checkpoint_is_made_told_of_and_loaded(qtbot: QtBot, dialog: QuantizeDialog, own_settings: Path) -> None:
    settled(qtbot, dialog)
    said: list[str] = []
    dialog.work.progressed.connect(lambda status: said.append(dialog.status.accessibleName()))
    made: list[Path] = []
    dialog.made.connect(made.append)
    dialog.begin.click()
    assert dialog.work.running
    assert dialog.leave.text() == "Cancel"
    assert not dialog.samples.isEnabled()
    assert dialog.progress.isVisible()
    qtbot.waitUntil(lambda: not dialog.work.running, timeout=WAIT)
    out = own_settings / "models" / "small-awq"
    assert made == [out], dialog.error.text()
    assert any("layer 1 of 1" in words for words in said)
    assert dialog.error.text().startswith(f"Made: {out}")
    info = inspect_model(str(out))
    assert info.quantized is not None
    assert info.quantized.method == "awq"
    assert json.loads((out / "quantized_from.json").read_text())["group"] == 128
    assert dialog.load.isVisible()
    assert dialog.show_folder.isVisible()
    assert not dialog.begin.isVisible()
    with qtbot.waitSignal(dialog.load_asked) as asked:
        dialog.load.click()
    assert asked.args == [ModelSpec(str(out))]
    assert dialog._gone


@needs_autoawq
def test_closing_while_it_works_asks_and_leaves_nothing_of_it(
    qtbot: QtBot, dialog: QuantizeDialog, own_settings: Path
) -> None:
    settled(qtbot, dialog)
    dialog.begin.click()
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert dialog.isVisible()
    assert "Closing stops it" in dialog.question.text()
    assert dialog.leave.text() == "Go on"
    dialog.leave.click()
    assert dialog.work.running
    assert not dialog.question.isVisible()
    dialog.close()
    assert dialog.isVisible()
    assert dialog.stop.hasFocus() or not dialog.isActiveWindow()
    with qtbot.waitSignal(dialog.finished, timeout=WAIT):
        dialog.stop.click()
    assert not list((own_settings / "models").glob("*"))


@needs_autoawq
def test_a_cancelled_one_can_be_begun_again(qtbot: QtBot, dialog: QuantizeDialog, own_settings: Path) -> None:
    settled(qtbot, dialog)
    dialog.begin.click()
    dialog.leave.click()
    assert dialog.leave.text() == "Stopping …"
    qtbot.waitUntil(lambda: not dialog.work.running, timeout=WAIT)
    assert dialog.error.text().startswith("Cancelled")
    assert dialog.begin.isVisible()
    assert dialog.begin.isEnabled()
    assert not list((own_settings / "models").glob("*"))
    dialog.samples.setValue(17)
    assert not dialog.error.text(), "that was about the one before"


def test_a_folder_is_suggested_that_is_not_there_yet(own_settings: Path) -> None:
    first = suggested_folder("Some/Model 7B")
    assert first == own_settings / "models" / "Model-7B-awq"
    first.mkdir(parents=True)
    assert suggested_folder("Some/Model 7B").name == "Model-7B-awq-2"


def test_the_models_page_opens_it_once_and_closing_the_window_ends_what_is_measured(
    qtbot: QtBot, window: MainWindow
) -> None:
    window.show_page(MODELS)
    page = window.models
    assert page is not None
    section = page.quality
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.info is not None, timeout=WAIT)
    section.compare_action.trigger()
    qtbot.waitUntil(lambda: section.panel.quality.subject is not None, timeout=WAIT)
    section.awq_action.trigger()
    dialog = section.dialog
    assert dialog is not None
    assert dialog.model.currentText() == "demo stories"
    section.panel.setup.make.click()
    assert section.dialog is dialog
    dialog.reject()
    assert section.dialog is None
    section.panel.begin.click()
    assert section.measuring.running
    window._on_escape()
    qtbot.waitUntil(lambda: not section.measuring.running, timeout=WAIT)
    assert section.panel.note.text().startswith("Cancelled")
    section.panel.begin.click()
    assert section.measuring.running
    with qtbot.waitSignal(window.closed, timeout=WAIT):
        window.close()
    assert not section.panel.quality.running
