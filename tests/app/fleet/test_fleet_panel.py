"""The fleet's panel over a real server: a replica is killed by its button, and its request is seen to go on."""

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from PySide6.QtCore import QPointF
from pytestqt.qtbot import QtBot

from app import storage
from app.__main__ import main
from app.fleet import FleetSource
from app.fleet.panel import route_words
from app.fleet.state import FleetState, fleet_state
from app.window.fleet import FleetWindow
from app.window.fleet.beside import OPEN_KEY
from app.window.main_window import MainWindow
from engine import EngineConfig, ModelSpec, SamplingParams
from engine.remote import ServerAddress
from engine.serving import Server, ServingSettings, local_fleet

SMALL = EngineConfig(max_running=8, token_budget=512, kv_memory=8 << 20)


def test_a_replica_is_killed_by_its_button_and_its_request_is_seen_to_go_on(qtbot: QtBot, window: MainWindow) -> None:
    """In a window of its own, and in one beside a window that is connected to the fleet."""
    with local_fleet(ModelSpec("demo-draft"), SMALL, 2, threads=1) as fleet:
        server, ready = Server(ServingSettings(port=0, kills=True)), threading.Event()
        serving = threading.Thread(target=server.run, args=(fleet, "demo", lambda _: ready.set()), name="serving")
        serving.start()
        assert ready.wait(30)
        alone = FleetWindow(FleetSource(ServerAddress(server.address)))
        qtbot.addWidget(alone)
        panel = alone.panel
        qtbot.waitUntil(lambda: len(panel.cards) == 2, timeout=20_000)
        assert panel.routes.routes == ()
        stream = fleet.submit([5, 6, 7], SamplingParams(max_tokens=1000, seed=1, ignore_eos=True))
        qtbot.waitUntil(lambda: any(card.picture.state.requests for card in panel.cards), timeout=20_000)
        before = next(card for card in panel.cards if card.picture.state.requests)
        other = next(card for card in panel.cards if card is not before)
        alone.resize(1120, 640)
        assert not alone.grab().isNull()
        before.kill.click()
        qtbot.waitUntil(lambda: any(one.moves for one in other.picture.state.requests), timeout=20_000)
        assert not before.kill.isEnabled()
        assert before.health.text() == "being loaded again"
        state: Any = panel.state
        assert (state.deaths, state.routes[-1].moves) == (1, 1)
        assert f"#{stream.request} ↷ replica {other.place}" in route_words(state.routes[-1])
        assert stream.result(timeout=60).finish_reason == "length"
        assert f"replica {other.place}" in panel.routes.tip(QPointF(20, 8 + 18 * (len(state.routes) - 1)))
        alone.close()
        it_is_watched_beside_a_connected_window(qtbot, window, ServerAddress(server.address))
        server.stop()
        serving.join(30)


def it_is_watched_beside_a_connected_window(qtbot: QtBot, window: MainWindow, server: ServerAddress) -> None:
    session, beside, asks = window.session, window.fleet, window.page.model.server.fleet
    assert not window.fleet_action.isEnabled()
    with qtbot.waitSignal(beside.offered, timeout=20_000):
        session.start(session.connect_to(server))
    assert beside.window is None, "nobody has asked for it yet"
    qtbot.waitUntil(lambda: not asks.isHidden(), timeout=20_000)
    asks.click()
    assert beside.window is not None
    panel = beside.window.panel
    qtbot.waitUntil(lambda: len(panel.cards) == 2, timeout=20_000)
    with qtbot.waitSignal(beside.offered, timeout=20_000):
        session.start(session.unload())
    assert beside.window is None, "it goes with the connection"
    with qtbot.waitSignal(beside.offered, timeout=20_000):
        session.start(session.connect_to(server))
    assert beside.window is not None, "it was left open"
    assert window.fleet_action.isEnabled()
    beside.window.close()
    assert beside.window is None
    with qtbot.waitSignal(beside.offered, timeout=20_000):
        session.start(session.unload())
    assert not storage.settings().value(OPEN_KEY, True, bool)


def told(**changes: Any) -> dict[str, Any]:
    counts = {"open": 1, "slots": 8, "running": 1, "waiting": 0, "blocks": 9, "free_blocks": 4, "cached_blocks": 1}
    request = {"request": 3, "tokens": 4, "limit": 9, "moves": 0}
    replica = {"place": 0, "alive": True, "process": 7, "requests": [request], **counts}
    route = {"time": 1.5, "request": 3, "place": 0, "why": "the emptiest", "moves": 0}
    whole = {"model": "demo", "replicas": [replica], "routes": [route], "open": 1, "parked": 0, "deaths": 0}
    return whole | {"kills": False} | changes


def test_what_no_fleet_tells_is_refused() -> None:
    assert isinstance(fleet_state(told()), FleetState)
    replica, route = told()["replicas"][0], told()["routes"][0]
    for wrong in (
        [], {}, None, told(open=-1), told(model=3), told(replicas=[replica | {"blocks": "9"}]),
        told(replicas=[replica | {"requests": 4}]), told(routes=[route | {"time": float("nan")}]), told(routes=[3]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"tells|is no"):
            fleet_state(wrong)
    assert len(fleet_state(told(replicas=[replica] * 99)).replicas) == 64
    assert len(fleet_state(told(routes=[route | {"why": "x" * 9_999}])).routes[0].why) == 300


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"replicas": 7}', b"\xff", b" " * (5 << 20)])
def test_a_server_that_is_no_fleet_is_told_of_and_asked_again(qtbot: QtBot, body: bytes) -> None:
    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as strange:
        serving = threading.Thread(target=strange.serve_forever, args=(0.01,))
        serving.start()
        source = FleetSource(ServerAddress(f"http://127.0.0.1:{strange.server_address[1]}"))
        with qtbot.waitSignal(source.failed, timeout=20_000):
            source.start()
        source.close()
        strange.shutdown()
        serving.join()


def test_a_server_that_hangs_does_not_hold_the_window_up(qtbot: QtBot) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = FleetSource(ServerAddress(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        source.start()
        with silent.accept()[0] as asked:
            assert asked.recv(4) == b"GET "
            begun = time.monotonic()
            source.close()
            assert time.monotonic() - begun < 2


def test_the_command_refuses_what_is_no_address_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "ftp://a"]) == 2
    assert "server='ftp://a': give its address" in capsys.readouterr().err
