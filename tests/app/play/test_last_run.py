"""After a run its measures stand in the place of live figures, in the real window."""

from pytestqt.qtbot import QtBot

from app.window.main_window import MainWindow
from app.words import duration, number
from engine import Trace, measure
from engine.trace import Submitted

WAIT = 30_000


def send(qtbot: QtBot, window: MainWindow, count: int, tokens: int) -> None:
    page, before = window.page, len(window.bridge.requests)
    page.sampling.form["max_tokens"].set(tokens)
    page.sampling.form["ignore_eos"].set(True)
    page.composer.prompt.setPlainText("Tell me a story about a fox.")
    page.composer.count.setValue(count)
    page.composer.send_action.trigger()
    qtbot.waitUntil(lambda: len(window.bridge.requests) == before + count, timeout=WAIT)


def figures(window: MainWindow) -> dict[str, tuple[str, str]]:
    charts = window.page.charts
    charts.refresh()
    return {chart.measure.name: (chart._title, " ".join(chart._said[0])) for chart in charts.charts}


def test_the_last_requests_measures_are_shown_until_the_next_are_sent(qtbot: QtBot, ready: MainWindow) -> None:
    window, bridge, charts = ready, ready.bridge, ready.page.charts
    send(qtbot, window, 3, 8)
    qtbot.waitUntil(lambda: bridge.over is not None, timeout=WAIT)
    send(qtbot, window, 2, 24)
    assert bridge.over is None
    qtbot.waitUntil(lambda: bridge.over is not None, timeout=WAIT)
    records = list(bridge.trace.records)
    second = [place for place, record in enumerate(records) if isinstance(record, Submitted)][3]
    wanted = measure(Trace([records[0], *records[second:]]))
    assert bridge.over == wanted
    assert (wanted.requests, wanted.output_tokens) == (2, 48), "those of the last send alone"
    told = figures(window)
    assert charts.heading._title.text() == "LAST RUN"
    assert told["throughput"][1] == f"{number(wanted.output_throughput)} tok/s"
    assert told["ttft"] == (f"TTFT  p50 · p99 {duration(wanted.ttft.p99)}", duration(wanted.ttft.p50))
    assert told["itl"] == (f"ITL  p50 · p99 {duration(wanted.itl.p99)}", duration(wanted.itl.p50))
    assert told["requests"] == ("Running · waiting · rows wasted", "0 %")
    assert wanted.kv is not None
    assert told["blocks"] == ("KV blocks used · waste", f"{100 * wanted.kv.waste:.3g} %")
    window.page.wall._tell_figures()
    assert window.page.wall.figures.text() == f"{number(wanted.output_throughput)} tok/s  ·  last run"
    bridge.scope.step_by(-3)
    assert figures(window)["ttft"][0] == "Time to first token  p50–p95", "the past has its own figures"
    assert charts.heading._title.text() == "LIVE"
    bridge.scope.follow()
    send(qtbot, window, 1, 200)
    figures(window)
    assert charts.heading._title.text() == "LIVE"
    window.session.stop()
    qtbot.waitUntil(lambda: not bridge.busy, timeout=WAIT)
