"""The Models page over the real engine, real folders, and a small hub on loopback."""

import json
import shutil
import struct
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLineEdit, QMessageBox, QPushButton, QSpinBox
from pytestqt.qtbot import QtBot

import resources
from app import storage
from app.bench.synthetic import synthetic_trace
from app.models.fit.breakdown import ELSEWHERE, holds_words, reason, rule_words
from app.models.fit.row import place_columns
from app.models.items import Item, Mark, Section, age_words, big_words, matches
from app.models.page import ModelsPage
from app.models.reference import Reference, folder_reference, hub_reference, is_path, short_revision
from app.session.downloads import KEY as DOWNLOADS_KEY
from app.session.downloads import Downloads
from app.session.recent_models import FOLDERS_KEY, MOST, RECENT_KEY, RecentModels
from app.session.session import SessionState
from app.ui.look import theme
from app.window.main_window import MODELS, PLAY, MainWindow
from engine import ModelSpec, Trace
from engine.checkpoints import cached_models, inspect_model
from engine.config import OF_LAYERS
from engine.memory import DeviceMemory, Fit
from tests.engine.checkpoints.hub.conftest import FIRST, SECOND
from tests.engine.checkpoints.hub.small_hub import TOKEN, SmallHub

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_hub")]

WAIT = 60_000
DEMO = resources.path("models/stories-5m")


def fact_words(page: ModelsPage) -> list[str]:
    """What is told of the chosen model: "name: value"."""
    cells = page.header.facts.cells
    return [f"{name.text()}: {value.text()}" for name, value in cells if not name.isHidden()]


def models_page(qtbot: QtBot, window: MainWindow) -> ModelsPage:
    """The page, with what is on this machine listed and the first model's fit told."""
    window.show_page(MODELS)
    page = window.models
    assert page is not None
    qtbot.waitUntil(lambda: page.fit.bills is not None and page.fit.table.isVisible(), timeout=WAIT)
    return page


def choose(qtbot: QtBot, page: ModelsPage, section: Section, source: str, revision: str | None = None) -> None:
    """Chooses a row and waits until all that can be known of it is on show."""
    assert page.list.choose((section.value, source, revision)), f"no row {source} in {section}"
    qtbot.waitUntil(lambda: page.subject is not None and bool(page.subject.info or page.subject.error), timeout=WAIT)
    assert page.subject is not None
    assert page.subject.item.source == source
    if page.subject.info is not None:
        qtbot.waitUntil(lambda: page.fit.bills is not None, timeout=WAIT)


def ask_hub(qtbot: QtBot, page: ModelsPage, words: str) -> None:
    page.list.search.setText(words)
    with qtbot.waitSignal(page.library.search_ended, timeout=WAIT):
        qtbot.keyClick(page.list.search, Qt.Key.Key_Return)


def names(page: ModelsPage, section: Section) -> list[str]:
    """Of the rows on show."""
    return [row.name for row in page.rows.rows if isinstance(row, Item) and row.section is section]


def sparse_llama(folder: Path, layers: int = 80, hidden: int = 8192, kind: str = "llama") -> Path:
    """A folder of a model's true size whose weights are a hole in a file."""
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": hidden // 128, "model_type": kind,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3 * hidden, "vocab_size": 32_000,
        "max_position_embeddings": 8192,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shapes = {"model.embed_tokens.weight": [32_000, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        stem = f"model.layers.{layer}"
        shapes |= {
            f"{stem}.self_attn.q_proj.weight": [hidden, hidden], f"{stem}.self_attn.k_proj.weight": [1024, hidden],
            f"{stem}.self_attn.v_proj.weight": [1024, hidden], f"{stem}.self_attn.o_proj.weight": [hidden, hidden],
            f"{stem}.mlp.gate_proj.weight": [3 * hidden, hidden], f"{stem}.mlp.up_proj.weight": [3 * hidden, hidden],
            f"{stem}.mlp.down_proj.weight": [hidden, 3 * hidden], f"{stem}.input_layernorm.weight": [hidden],
            f"{stem}.post_attention_layernorm.weight": [hidden],
        }  # fmt: skip
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * (shape[0] * shape[1] if len(shape) > 1 else shape[0])
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return folder


# What a person typed.


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Qwen/Qwen3-0.6B", Reference("Qwen/Qwen3-0.6B")),
        ("  Qwen/Qwen3-0.6B@c1899de ", Reference("Qwen/Qwen3-0.6B", "c1899de")),
        ("https://huggingface.co/Qwen/Qwen3-0.6B", Reference("Qwen/Qwen3-0.6B")),
        ("huggingface.co/Qwen/Qwen3-0.6B/tree/v1.0?x=1", Reference("Qwen/Qwen3-0.6B", "v1.0")),
        ("https://hf.co/a/b/blob/main/config.json", Reference("a/b", "main")),
        ("http://127.0.0.1:8000/a/b/", Reference("a/b")),
        ("https://huggingface.co/datasets/squad/plain", None),
        ("small stories", None),
        ("qwen", None),
        ("/models/qwen", None),
    ],
)
def test_a_hub_id_is_understood_however_it_is_pasted(text: str, meant: Reference | None) -> None:
    assert hub_reference(text) == meant


def test_figures_of_the_list_are_said_shortly() -> None:
    assert [big_words(n) for n in (7, 812, 1_200, 41_000, 1_240_000)] == ["7", "812", "1.2 k", "41 k", "1.2 M"]
    now = 1e9
    assert [age_words(now - s, now) for s in (1, 61, 7200, 90_000, 15 * 86_400)] == [
        "just now", "1 minute ago", "2 hours ago", "yesterday", "2 weeks ago",
    ]  # fmt: skip
    assert short_revision("c" * 40) == "ccccccc"
    assert short_revision("main") == "main"
    item = Item(Section.HUB, "Qwen/Qwen3-0.6B", None, "Qwen/Qwen3-0.6B", "apache-2.0", problem="it is broken")
    assert matches(item, "qwen APACHE")
    assert not matches(item, "qwen mit")
    assert item.mark(loaded=False) is Mark.PROBLEM
    assert item.words().endswith("it is broken")


def test_a_second_load_while_one_is_under_way_asks_for_nothing(qtbot: QtBot, window: MainWindow) -> None:
    page = models_page(qtbot, window)
    asked: list[ModelSpec] = []
    page.load_asked.connect(asked.append)
    page.fit.load_asked.emit("none", "auto", "auto")
    qtbot.waitUntil(lambda: window.session.state is SessionState.LOADING)
    page.fit.load_asked.emit("nf4", "auto", "auto")  # a click before the rows have heard of the first
    qtbot.waitUntil(lambda: window.pages.currentIndex() == PLAY, timeout=WAIT)
    assert [spec.quantization for spec in asked] == ["none"]


def test_a_path_that_leads_nowhere_is_no_folder_and_no_error() -> None:
    for text in ("~nobody-of-that-name/x", "/" + "a" * 300, "/no\0where", "/no/where"):
        assert folder_reference(text) is None
        assert is_path(text)
    assert not is_path("owner/name")
    assert folder_reference(f" {DEMO} ") == DEMO


# What is remembered.


def test_recent_models_are_kept_newest_first_a_model_once_with_its_last_settings(qtbot: QtBot) -> None:
    recents = RecentModels()
    recents.add(ModelSpec("demo"))
    assert not recents.entries, "the demo as it ships is always on show"
    specs = [ModelSpec(f"owner/model-{i}", "nf4", "bfloat16", "cpu", "main") for i in range(MOST + 2)]
    for spec in specs:
        recents.add(spec)
    again = ModelSpec(specs[5].source, "int8", revision="main")
    recents.add(again)
    kept = RecentModels()
    assert [entry.spec for entry in kept.entries[:2]] == [again, specs[-1]]
    assert len(kept.entries) == MOST
    assert sum(entry.spec.source == again.source for entry in kept.entries) == 1
    kept.remove(again)
    assert RecentModels().entries[0].spec == specs[-1]
    kept.clear()
    assert not RecentModels().entries


def test_settings_that_cannot_be_read_are_no_reason_to_fail(qtbot: QtBot, request: pytest.FixtureRequest) -> None:
    good = {"used": 5.0, "source": "owner/name", "quantization": "nf4"}
    for kept in ("{not json", json.dumps({"a": 1}), json.dumps([3, {"source": "x", "quantization": "int3"}, good])):
        storage.settings().setValue(RECENT_KEY, kept)
        recents = RecentModels()
        assert [e.spec for e in recents.entries] == ([ModelSpec("owner/name", "nf4")] if "int3" in kept else [])
    folders, odd = ["/gone", "", "relative", {"a": 1}, "/nul\0"], {**good, "used": 1e400}
    for key, value in (
        (FOLDERS_KEY, folders), (RECENT_KEY, [odd, {**good, "revision": 7}, good]),
        (DOWNLOADS_KEY, [{"id": "a/b", "revision": "main", "total": -4, "done": 1e30}]),
    ):  # fmt: skip
        storage.settings().setValue(key, json.dumps(value))
    for key in ("window/geometry", "window/layout"):
        storage.settings().setValue(key, "another version's")
    assert RecentModels().folders == [Path("/gone")]
    assert [e.used for e in RecentModels().entries] == [5.0]
    window: MainWindow = request.getfixturevalue("window")
    assert Downloads(window.session).entries == []


# The bills.


def test_reasons_and_the_rule_of_thumb_are_told_in_words() -> None:
    gib = 1 << 30
    room = DeviceMemory("cpu", 8 * gib, 16 * gib)
    big = Fit("none", "float32", 30 * gib, 1024, gib, 0, 0, False)
    assert reason(big, room) == "does not fit: 31 GB before any KV cache, 23 GB more than is free"
    assert reason(Fit("nf4", "bfloat16", 1, 1, 1, 1, 1, False, "install it"), room) == "install it"
    fine = Fit("nf4", "bfloat16", gib, 1024, 1, gib, 70_000, True)
    assert reason(fine, room) == ""
    assert holds_words(fine, 1024) == "68 × 1,024"
    info = inspect_model("demo")
    formula, why = rule_words(info, "float32", 1024, 64)
    assert "2 · 4 · 6 · 256 · 1,024 · 64 = 768" in formula
    assert formula.startswith("KV cache of 64 × 1,024 tokens in float32: 384")
    assert "8 query heads share 4" in why
    assert "2 × smaller" in why


def test_columns_of_the_fit_table_give_way_in_their_order_and_never_overlap() -> None:
    for zoom in (1.0, 2.0):
        theme.set_zoom(zoom)
        before = 0
        for width in range(400, 2000, 20):
            columns = place_columns(width)
            assert {"name", "holds"} <= set(columns)
            assert len(columns) >= before
            before = len(columns)
            ends = [x + wide for x, wide in columns.values()]
            assert all(end <= begin for end, (begin, _) in zip(ends, list(columns.values())[1:]))
            if width > 400 * zoom:
                assert ends[-1] <= width
        assert before == 8


# The page.


def test_what_ships_is_listed_and_its_facts_and_fit_are_told_without_a_network(
    qtbot: QtBot, window: MainWindow
) -> None:
    page = models_page(qtbot, window)
    assert names(page, Section.SHIPPED)[0] == "demo stories 5M"
    assert page.header.title.accessibleName() == "demo stories 5M"
    told = fact_words(page)
    assert "Architecture: LlamaForCausalLM ✓" in told
    assert "Heads: 8  ·  4 KV  ·  32 wide" in told
    assert "Context: 1,024 tokens" in told
    none = page.fit.rows["none"]
    assert none.recommended
    assert none.button.property("role") == "primary"
    assert "fits, 64 × 1,024 tokens" in none.accessibleName()
    page.fit.length.setValue(512)
    assert "128 × 512" in none.accessibleName()
    page.fit.dtype.setCurrentIndex(page.fit.dtype.findData("bfloat16"))
    qtbot.waitUntil(lambda: none.fit is not None and none.fit.dtype == "bfloat16", timeout=WAIT)
    qtbot.mouseClick(page.header.copy, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "demo"
    page.fit.export_menu.copy("Markdown")
    assert "| none | bfloat16 |" in QGuiApplication.clipboard().text()
    page.fit.export_menu.copy("CSV")
    assert QGuiApplication.clipboard().text().startswith("quantization,dtype,weights,")
    page.fit.export_menu.copy("JSON")
    assert json.loads(QGuiApplication.clipboard().text())["rows"][0]["quantization"] == "none"
    assert none.button.isEnabled()
    page.fit.device.set_value(f"{ELSEWHERE}H100")
    qtbot.waitUntil(lambda: "H100, as published: 79.4 GB of 80 GB free, read at 3,350 GB/s" in page.fit.room.text())
    assert "for 64 at once: a step reads all weights once" in page.fit.bound.text()
    assert not none.button.isEnabled(), "it is not here"
    assert none.button.toolTip() == "H100 is not here. To load the model, choose a device of this machine."
    assert (page.fit.best, page.fit.chosen) == ("", ("bfloat16", "auto"))
    page.fit.export_menu.copy("JSON")
    assert json.loads(QGuiApplication.clipboard().text())["device"] == "H100"
    page.fit.device.set_value("cpu")
    qtbot.waitUntil(none.button.isEnabled)
    assert page.fit.bound.text() == ""


def test_a_load_shows_itself_goes_to_play_and_is_remembered(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> None:
    window.runs.show(Trace(synthetic_trace(streams=2, tokens_per_second=40, seconds=1)), tmp_path / "a.bsrun")
    page = models_page(qtbot, window)
    demo = page.rows.items(Section.SHIPPED)[0]
    assert demo.mark(page.rows.loaded(demo)) is Mark.NONE
    qtbot.mouseClick(page.fit.rows["torchao-int8"].button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.session.state is SessionState.LOADING)
    assert page.loading.isVisible()
    qtbot.waitUntil(lambda: window.pages.currentIndex() == PLAY, timeout=WAIT)
    assert window.banner.title.text() == "demo stories is loaded"
    assert window.runs.path is None, "the model is on show, not the saved run"
    assert "int8, torchao" in window.banner.text.text()
    window.show_page(MODELS)
    assert not page.loading.isVisible()
    qtbot.waitUntil(lambda: page.fit.rows["torchao-int8"].button.text() == "Loaded", timeout=WAIT)
    assert demo.mark(page.rows.loaded(demo)) is Mark.LOADED
    recent = page.rows.items(Section.RECENT)
    assert [item.settings for item in recent] == [ModelSpec("demo", "torchao-int8")]
    assert recent[0].detail == "int8, torchao  ·  just now"
    assert page.rows.loaded(recent[0])
    window.recents.add(ModelSpec("demo", "nf4"))  # as if it had been loaded like this since
    other = page.rows.items(Section.RECENT)
    assert [(item.settings, page.rows.loaded(item)) for item in other] == [(ModelSpec("demo", "nf4"), False)]
    window.recents.add(ModelSpec("demo", "torchao-int8"))
    choose(qtbot, page, Section.RECENT, "demo")
    qtbot.waitUntil(lambda: page.fit.rows["torchao-int8"].last)
    assert page.fit.best == "torchao-int8"
    qtbot.keyClick(page.list.view, Qt.Key.Key_Delete)
    assert names(page, Section.RECENT) == []


def test_a_load_that_is_cancelled_or_fails_leaves_the_page_with_words(
    qtbot: QtBot, window: MainWindow, tmp_path: Path
) -> None:
    page = models_page(qtbot, window)
    page.fit.rows["none"].load()
    qtbot.waitUntil(lambda: page.loading.isVisible(), timeout=WAIT)
    qtbot.waitUntil(lambda: not page.fit.rows["none"].button.isEnabled())
    page.loading.cancel.click()
    with qtbot.waitSignal(window.session.load_failed, timeout=WAIT):
        pass
    assert window.pages.currentIndex() == MODELS
    assert page.notice.title.text() == "The load was cancelled"
    assert not page.loading.isVisible()
    folder = tmp_path / "later-broken"
    shutil.copytree(DEMO, folder)
    page.open_folder(folder)
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.item.source == str(folder), timeout=WAIT)
    qtbot.waitUntil(lambda: page.fit.rows["none"].button.isEnabled(), timeout=WAIT)
    (folder / "model.safetensors").write_bytes(b"")
    with qtbot.waitSignal(window.session.load_failed, timeout=WAIT):
        page.fit.rows["none"].load()
    assert window.banner.title.text() == "The model was not loaded"
    qtbot.keyClick(page, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    page.rescan_action.trigger()
    qtbot.waitUntil(lambda: page.subject is not None and bool(page.subject.error), timeout=WAIT)
    assert not page.sections.isVisible()


def test_folders_are_added_by_path_and_what_is_wrong_with_them_is_said(
    qtbot: QtBot, window: MainWindow, tmp_path: Path
) -> None:
    good, broken, other = tmp_path / "good", tmp_path / "broken", sparse_llama(tmp_path / "other", 2, 256, "bloom")
    shutil.copytree(DEMO, good)
    shutil.copytree(DEMO, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    page = models_page(qtbot, window)
    for folder in (good, broken, other):
        page.list.search.setText(str(folder))
        qtbot.keyClick(page.list.search, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(names(page, Section.FOLDERS)) == 3, timeout=WAIT)
    choose(qtbot, page, Section.FOLDERS, str(broken))
    assert "cut short" in page.header.words.text()
    assert not page.sections.isVisible()
    choose(qtbot, page, Section.FOLDERS, str(other))
    assert "bloom" in page.header.words.text()
    assert "Architecture: LlamaForCausalLM ✕" in fact_words(page)
    marks = {item.name: item.mark(loaded=False) for item in page.rows.items(Section.FOLDERS)}
    assert marks == {"good": Mark.NONE, "broken": Mark.PROBLEM, "other": Mark.UNSUPPORTED}
    assert not any(row.button.isVisible() or row.recommended for row in page.fit.rows.values())
    choose(qtbot, page, Section.FOLDERS, str(good))
    shown = {name for name, row in page.fit.rows.items() if row.isVisible()}
    assert shown == set(OF_LAYERS), "it has no experts"
    assert all(page.fit.rows[name].button.isVisible() for name in shown)
    qtbot.keyClick(page.list.view, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: names(page, Section.FOLDERS) == ["other", "broken"], timeout=WAIT)
    assert good.is_dir(), "its files stay"
    page.recents.add(ModelSpec(str(tmp_path / "gone"), "nf4"))
    page.recents.remove_folder(tmp_path / "gone")
    qtbot.waitUntil(lambda: any(item.problem for item in page.rows.items(Section.RECENT)), timeout=WAIT)
    assert "no folder" in page.rows.items(Section.RECENT)[0].problem
    assert RecentModels().folders == [other, broken]


def test_a_very_long_name_makes_nothing_wider_than_the_page(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> None:
    page = models_page(qtbot, window)
    there = tmp_path / ("model-" * 40)
    shutil.copytree(DEMO, there)
    for folder in (Path("/" + "a" * 300), there):
        page.open_folder(folder)
        qtbot.waitUntil(
            lambda f=folder: page.subject is not None and page.subject.item.source == str(f),  # type: ignore[misc]
            timeout=WAIT,
        )
        QApplication.processEvents()
        sheet = page.sections.parentWidget()
        assert sheet is not None
        assert sheet.width() <= page.width()


def test_a_model_too_large_says_by_how_much_before_a_weight_is_read(
    qtbot: QtBot, window: MainWindow, tmp_path: Path
) -> None:
    folder = sparse_llama(tmp_path / "a-hundred-b", 120)
    page = models_page(qtbot, window)
    window.open_path(folder)
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.item.source == str(folder), timeout=WAIT)
    qtbot.waitUntil(lambda: page.fit.bills is not None, timeout=WAIT)
    assert page.fit.warning.text().startswith("Nothing fits: the smallest needs")
    none = page.fit.rows["none"]
    assert none.second_line()[0][0].startswith("does not fit: ")
    assert not none.button.isEnabled()
    assert page.fit.best == ""


def test_typing_filters_and_the_keyboard_alone_is_enough(qtbot: QtBot, window: MainWindow) -> None:
    page = models_page(qtbot, window)
    page.search_action.trigger()
    assert QApplication.focusWidget() is page.list.search or not window.isActiveWindow()
    qtbot.keyClicks(page.list.search, "draft")
    assert names(page, Section.SHIPPED) == ["demo draft 0.8M"]
    qtbot.keyClick(page.list.search, Qt.Key.Key_Down)
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.item.source == "demo-draft", timeout=WAIT)
    qtbot.waitUntil(lambda: page.fit.bills is not None, timeout=WAIT)
    page.list.search.setText("no such words")
    assert page.list.empty.isVisible()
    assert "Enter searches the hub" in page.list.empty_words.text()
    page.list.say_searching(True)
    assert page.list.empty_words.text() == "Searching the hub …"
    page.list.say_searching(False)
    assert "Enter" not in page.list.empty_words.text(), "it was asked"
    assert page.subject is not None
    assert page.subject.item.source == "demo-draft", "the right side stays"
    page.list.show_all.click()
    assert page.list.current is not None
    assert page.list.current.source == "demo-draft"
    qtbot.keyClick(page.list.view, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.session.ready and window.session.spec.source == "demo-draft", timeout=WAIT)
    window.show_page(MODELS)
    first, second = page.fit.rows["none"], page.fit.rows["int8"]
    assert first.nextInFocusChain() is not None
    first.setFocus()
    with qtbot.waitSignal(first.moved):
        qtbot.keyClick(first, Qt.Key.Key_Down)
    qtbot.waitUntil(second.button.isEnabled, timeout=WAIT)
    qtbot.keyClick(second, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.session.spec.quantization == "int8", timeout=WAIT)
    window.session.cancel_load()
    qtbot.waitUntil(lambda: window.session.state is not SessionState.LOADING, timeout=WAIT)


def test_all_that_can_be_used_has_a_name_in_both_themes_and_at_every_size(qtbot: QtBot, window: MainWindow) -> None:
    page = models_page(qtbot, window)
    for kind in (QPushButton, QComboBox, QSpinBox, QLineEdit, QAbstractButton):
        for widget in page.findChildren(kind):
            named = widget.objectName() and not widget.objectName().startswith("qt_")
            if named and widget.isVisibleTo(window):
                words = widget.accessibleName() or (widget.text() if isinstance(widget, QAbstractButton) else "")
                assert words, f"{widget.objectName()} has no name for a screen reader"
                assert widget.focusPolicy() != Qt.FocusPolicy.NoFocus
    grid = page.header.facts
    for name, zoom, size in (
        ("light", 1.0, (1280, 800)), ("dark", 2.0, (1280, 720)), ("light", 0.75, (2400, 1300)),
        ("dark", 1.0, (1100, 760)),
    ):  # fmt: skip
        theme.set_theme(name)
        theme.set_zoom(zoom)
        window.resize(*size)
        QApplication.processEvents()
        assert not page.grab().isNull()
        for button in (page.list.ask, page.list.add):
            assert button.width() >= button.sizeHint().width(), f"{button.text()!r} is cut"
        qtbot.waitUntil(lambda: grid.height() >= grid.heightForWidth(grid.width()))
        widest = page.sections.width()
        assert all(row.width() <= widest for row in page.fit.rows.values() if row.isVisible())
        assert page.list.view.horizontalScrollBar().maximum() == 0
        menu = page.list.menu(page.list.current)
        assert [a.text().split("\t")[0] for a in menu.actions() if a.text()][:1] == ["Add a folder…"]
        menu.deleteLater()


# The hub.


def test_without_a_network_the_hub_says_so_and_all_else_works(qtbot: QtBot, window: MainWindow) -> None:
    page = models_page(qtbot, window)
    ask_hub(qtbot, page, "qwen")
    assert "cannot be reached" in page.list.note.text()
    assert page.list.note.text().endswith("Local models work without it.")
    assert not page.list.progress.isVisible()
    page.list.search.setText("~nobody-of-that-name/model")
    qtbot.keyClick(page.list.search, Qt.Key.Key_Return)
    assert page.list.note.text() == "There is no folder ~nobody-of-that-name/model: check its path."
    page.list.search.clear()
    choose(qtbot, page, Section.SHIPPED, "demo-draft")
    assert page.fit.rows["none"].button.isEnabled()
    row = page.fit.rows["awq"]
    assert "can be made of this model" in row.second_line()[0][0]
    row.setFocus()
    qtbot.keyClick(row, Qt.Key.Key_Return)
    assert page.quality.dialog is not None
    assert page.quality.dialog.model.currentText() == "demo draft"
    page.quality.dialog.reject()
    page.recents.add(ModelSpec("owner/gone", "nf4"))
    choose(qtbot, page, Section.SHIPPED, str(resources.path("models/stories-5m-awq")))
    assert page.fit.bills is not None
    assert page.fit.bills.recommended == "awq"
    assert page.fit.rows["int8"].second_line()[0][0] == "this checkpoint is AWQ already: nothing to quantize"
    choose(qtbot, page, Section.RECENT, "owner/gone")
    assert "cannot be reached" in page.header.words.text()


def test_a_hub_model_is_found_judged_fetched_loaded_and_deleted(
    qtbot: QtBot, hub: SmallHub, window: MainWindow
) -> None:
    page = models_page(qtbot, window)
    page.list.ask.click()
    assert "Type what to search for" in page.list.note.text()
    ask_hub(qtbot, page, "stories")
    assert names(page, Section.HUB)[:2] == ["batch/stories-5m", "batch/stories"]
    choose(qtbot, page, Section.HUB, "batch/stories", SECOND)
    assert "Licence: apache-2.0" in fact_words(page)
    assert page.header.place.accessibleName() == "batch/stories  ·  2222222"
    weights = len(hub.repositories["batch/stories"].commits[SECOND]["model.safetensors"])
    assert hub.sent("model.safetensors") < weights / 3, "its header alone is read"
    assert page.download.button.text() == "Download 1.75 MB"
    assert not any(row.button.isVisible() for row in page.fit.rows.values())
    assert page.fit.rows["none"].recommended
    with qtbot.waitSignal(page.downloads.finished, timeout=WAIT):
        qtbot.keyClick(page.list.view, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: names(page, Section.CACHE) == ["batch/stories"], timeout=WAIT)
    qtbot.waitUntil(lambda: page.fit.rows["none"].button.isVisible(), timeout=WAIT)
    assert not page.download.isVisible()
    assert page.subject is not None
    assert page.subject.hub is None
    assert not page.subject.item.problem
    item = next(item for item in page.rows.items(Section.HUB) if item.source == "batch/stories")
    assert item.mark(loaded=False) is Mark.HERE
    with qtbot.waitSignal(page.loaded, timeout=WAIT):
        page.fit.rows["none"].load()
    assert window.session.spec == ModelSpec("batch/stories", revision=SECOND)

    window.show_page(MODELS)
    page.list.search.clear()
    choose(qtbot, page, Section.CACHE, "batch/stories", SECOND)
    assert page.list.current is not None
    page.deletion.ask(page.list.current)
    assert page.notice.title.text() == "batch/stories is loaded"
    unloading = window.session.start(window.session.unload())
    qtbot.waitUntil(unloading.done, timeout=WAIT)
    delete = next(a for a in page.list.menu(page.list.current).actions() if a.text().startswith("Delete"))
    assert isinstance(delete, QAction)
    delete.trigger()
    qtbot.waitUntil(lambda: page.findChild(QMessageBox) is not None, timeout=WAIT)
    box = page.findChild(QMessageBox)
    assert isinstance(box, QMessageBox)
    assert "frees 1.75 MB" in box.informativeText()
    next(b for b in box.buttons() if b.text() == "Delete").click()
    qtbot.waitUntil(lambda: names(page, Section.CACHE) == [], timeout=WAIT)
    assert cached_models() == []


def test_a_revision_is_pinned_and_a_stopped_download_goes_on_from_the_list(
    qtbot: QtBot, hub: SmallHub, window: MainWindow
) -> None:
    page = models_page(qtbot, window)
    ask_hub(qtbot, page, f"{hub.address}/batch/stories/tree/v1")
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.revision == FIRST, timeout=WAIT)
    ask_hub(qtbot, page, "batch/stories-5m")
    qtbot.waitUntil(lambda: page.download.isVisible() and page.fit.bills is not None, timeout=WAIT)
    hub.pace = 0.05
    page.download.button.click()
    entry = page.downloads.running
    assert entry is not None
    qtbot.waitUntil(lambda: entry.done > 0, timeout=WAIT)
    assert page.download.button.text() == "Cancel"
    assert names(page, Section.DOWNLOADS) == ["batch/stories-5m"] or page.list.search.text()
    page.download.button.click()
    qtbot.waitUntil(lambda: not entry.active, timeout=WAIT)
    assert page.download.button.text() == "Resume download"
    page.list.search.clear()
    page.library.rescan()
    choose(qtbot, page, Section.DOWNLOADS, "batch/stories-5m", FIRST)
    qtbot.keyClick(page.list.view, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: names(page, Section.CACHE) == ["batch/stories-5m"], timeout=WAIT)
    part = page.rows.items(Section.CACHE)[0]
    assert part.mark(loaded=False) is Mark.PARTIAL
    hub.pace = 0.0
    choose(qtbot, page, Section.CACHE, "batch/stories-5m", FIRST)
    assert page.download.button.text() == "Resume download"
    with qtbot.waitSignal(page.downloads.finished, timeout=WAIT):
        page.download.button.click()
    qtbot.waitUntil(lambda: page.fit.rows["none"].button.isVisible(), timeout=WAIT)


def test_a_gated_model_is_explained_and_a_search_can_be_given_up(
    qtbot: QtBot, hub: SmallHub, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = models_page(qtbot, window)
    ask_hub(qtbot, page, "batch/gated-stories")
    qtbot.waitUntil(lambda: page.subject is not None and bool(page.subject.error), timeout=WAIT)
    assert page.header.words.text().startswith("Gated: its owner gives access to those whom they approve.")
    assert "hf auth login" in page.header.words.text()
    assert not page.download.isVisible()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    page.rescan_action.trigger()
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.info is not None, timeout=WAIT)
    assert page.download.button.text() == "Download 1.75 MB"
    assert page.rows.items(Section.HUB)[0].detail.startswith("gated")
    page.list.search.setText("stories")
    qtbot.keyClick(page.list.search, Qt.Key.Key_Return)
    assert page.list.ask.text() == "Cancel the search"
    page.list.ask.click()
    assert page.list.ask.text() == "Search the hub"
    assert names(page, Section.HUB) == ["batch/gated-stories"], "what it answers later is not wanted"
    qtbot.waitUntil(lambda: not window.session._tasks, timeout=WAIT)
    assert names(page, Section.HUB) == ["batch/gated-stories"]
