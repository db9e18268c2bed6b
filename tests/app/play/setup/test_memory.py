"""The bill of memory in the model panel: its items, what fits, and which decode steps were captured."""

from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app import storage
from app.bench.synthetic import header
from app.play.setup.memory import LENGTH_KEY, BillBar, ModelBill
from app.play.setup.model import ModelPanel
from app.session.loading.progress import LoadStatus
from app.session.memory.device import captured_words, device_bill
from app.session.memory.estimate import Estimate
from app.session.session import Session
from app.ui.look import theme
from app.words import bytes_words
from engine import EngineConfig, ModelSpec, Trace
from engine.memory import Fit, kv_capacity
from tests.app.made_up_gpu import gpu_header

GPU = gpu_header(64, 24_000)
WAIT = 60_000


def shown(qtbot: QtBot, width: int = 262) -> ModelBill:
    bill = ModelBill()
    qtbot.addWidget(bill)
    bill.show_loaded(GPU)
    bill.resize(width, bill.sizeHint().height())
    bill.show()
    return bill


def choose(bill: ModelBill, index: int) -> None:
    bill.length.setCurrentIndex(index)
    bill.length.activated.emit(index)


def test_every_byte_of_the_device_is_on_one_line_of_the_bill(qtbot: QtBot) -> None:
    bill = shown(qtbot)
    bar = bill.bar
    names = ["weights", "KV pool", "activations", "graphs", "runtime", "others", "free"]
    assert [item.name for item in bar.items] == names
    assert GPU.bill is not None
    assert sum(item.count for item in bar.items) == GPU.bill.total
    for name in names:
        assert name in bar.accessibleName()
    eager = gpu_header(64, 24_000, off="it waits")
    assert "graphs" not in [item.name for item in device_bill(eager, None).items]


@pytest.mark.parametrize(("width", "columns"), [(262, 2), (150, 1)])
def test_the_bar_is_filled_and_what_is_small_can_be_seen_and_asked(qtbot: QtBot, width: int, columns: int) -> None:
    bar = BillBar()
    qtbot.addWidget(bar)
    items = [replace(item, count=1) if item.name == "others" else item for item in device_bill(GPU, None).items]
    bar.show_items(items, 80 << 30, "")
    bar.resize(width, bar.sizeHint().height())
    bar.resize(width, bar.sizeHint().height())
    assert len(bar.columns(width)) == columns
    parts = bar.segments()
    assert parts[0][0].left() == 0
    assert parts[-1][0].right() == pytest.approx(width)
    assert min(part.width() for part, _ in parts) >= theme.px(2)
    for (part, item), (after, _) in pairwise(parts):
        assert part.right() == after.left()
        assert item.name in bar.tip(part.center())
        assert item.about in bar.tip(part.center())
    assert bar.tip(QPointF(4, bar.height() - 4)).startswith("graphs" if columns == 2 else "free")
    assert not bar.grab().isNull()


def test_a_model_that_is_too_large_is_drawn_beyond_the_end_of_memory(qtbot: QtBot) -> None:
    bill = ModelBill()
    qtbot.addWidget(bill)
    gigabyte = 1 << 30
    fit = Fit("none", "float32", 30 * gigabyte, 1 << 18, gigabyte, 0, 0, False)
    bill.show_estimate(Estimate(fit.weights, 20 * gigabyte, 24 * gigabyte, (), fit, (fit,), 2048), EngineConfig())
    bill.resize(350, bill.sizeHint().height())
    bill.show()
    assert bill.bar.width() == 350
    assert "does not fit" in bill.memory.text()
    assert bill.bar.tip(QPointF(240, 4)) == "All there is: 24 GB", "of 35 GB that it and others would take"
    assert "~30 GB" in bill.bar.accessibleName()
    assert "pool 0 B" in bill.bar.accessibleName()
    assert not bill.length.isVisibleTo(bill)
    ground, warn = (QColor(c).rgb() for c in (theme.current().panel, theme.current().warn))
    image = bill.bar.grab().toImage()
    assert image.pixelColor(240, 4).rgb() == warn != ground


def test_it_says_how_many_requests_of_a_length_fit_and_remembers_the_length(qtbot: QtBot) -> None:
    bill = shown(qtbot)
    assert [bill.length.itemText(i) for i in range(bill.length.count())] == [
        "512 tokens", "2,048 tokens", "8,192 tokens", "context",
    ]  # fmt: skip
    assert bill.holds.text() == f"Fits {24_000 * 16 // 131_072} requests ×", "the model's context at first"
    choose(bill, 1)
    assert bill.holds.text() == f"Fits {24_000 // 128} requests ×"
    again = shown(qtbot)
    assert again.length.currentText() == "2,048 tokens"
    again.show_loaded(header(8, 1000))  # its context is 2,048 tokens: no other length of that name
    assert [again.length.itemText(i) for i in range(again.length.count())] == ["512 tokens", "context"]
    assert again.holds.text() == f"Fits {kv_capacity(1000, 16, 2048)} requests ×"
    for odd in ("what is this", "9" * 20, "-1"):
        storage.settings().setValue(LENGTH_KEY, odd)
        assert shown(qtbot).length.currentText() == "context"


def test_without_a_cache_nothing_is_said_to_fit(qtbot: QtBot) -> None:
    bill = shown(qtbot)
    assert not bill.length.isHidden()
    assert bill.length.isVisible()
    bill.show_loaded(replace(GPU, config=replace(GPU.config, mode="recompute")))
    assert not bill.length.isVisible()


def test_captured_decode_steps_are_told_on_a_gpu_and_threads_on_a_cpu() -> None:
    assert captured_words(GPU) == "Decode graphs: 1–256 rows (35)"
    assert captured_words(replace(GPU, graphs=(4,))) == "Decode graphs: 4 rows (1)"
    hosts = replace(GPU, host_blocks=1000, swap_rate=17e9)
    size = bytes_words(1000 * GPU.config.block_size * GPU.kv_token_bytes)
    assert captured_words(hosts).splitlines()[-1] == f"Host memory: {size}, copied at 15.8 GB/s"
    assert captured_words(gpu_header(64, 100, off="it waits")) == "Decode graphs: off, it waits"
    mixed = replace(GPU, mixed_graphs=(16, 32, 64))
    assert captured_words(mixed) == "Decode graphs: 1–256 rows (35)\nMixed graphs: 16–64 tokens (3)"
    mixed = replace(GPU, mixed_off="no memory is left for them")
    assert captured_words(mixed).endswith("\nMixed graphs: off, no memory is left for them")
    here = header(8, 100)
    compiled = replace(here, machine=replace(here.machine, threads=2, kernels="compiled: by cc"))
    assert captured_words(compiled) == "2 threads, compiled kernels"
    plain = replace(here, machine=replace(here.machine, threads=1, kernels="torch's: no C compiler is here"))
    assert captured_words(plain) == "1 thread, torch's kernels"


def test_the_panel_shows_the_bill_of_a_real_load_and_the_estimate_before_it(qtbot: QtBot, loaded: Session) -> None:
    assert loaded.trace is not None
    told = loaded.trace.header
    panel = ModelPanel(loaded)
    qtbot.addWidget(panel)
    panel.set_spec(ModelSpec("demo"))
    panel._on_trace(loaded.trace)
    assert told.bill is not None
    assert sum(item.count for item in panel.bill.bar.items) == told.bill.total
    assert f"context {told.model.context:,}" in panel.facts.text()
    assert ("Decode graphs: 1–" in panel.facts.text()) == bool(told.graphs)
    panel.set_spec(ModelSpec("demo-draft"))
    qtbot.waitUntil(lambda: panel.bill.memory.text().startswith("~"), timeout=WAIT)
    assert "~" in panel.bill.bar.accessibleName()
    assert "runtime" not in [item.name for item in panel.bill.bar.items], "that is not known beforehand"


def test_a_trace_of_a_gpu_says_what_was_captured_in_the_panel(qtbot: QtBot, session: Session) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)
    panel._on_trace(Trace([GPU]))
    assert "Decode graphs: 1–256 rows (35)" in panel.facts.text()


def test_captures_are_counted_and_bytes_are_bytes() -> None:
    assert LoadStatus("capturing graphs", 3, 35, 1.0, None).words == "capturing graphs 3 of 35"
    assert LoadStatus("reading weights", 3 << 30, 15 << 30, 1.0, None).words == "reading weights · 3 GB of 15 GB"
    assert LoadStatus("measuring", 0, 0, 1.0, None).words == "measuring"
