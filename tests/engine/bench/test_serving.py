"""What serving costs, and how servers beside each other are asked, at a few streams."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.__main__ import main
from engine.bench.serving.beside import race
from engine.bench.serving.client import Asked
from engine.bench.serving.clients import clients
from engine.bench.serving.http_cost import measure
from engine.bench.serving.servers import LLAMACPP, OURS, Kind, Order
from engine.compare.remote import Server
from tests.engine.compare.remote.breaking import USAGE, answering, event

ROOT = Path(__file__).parents[3]
ABSENT = Kind("Nobody", ("no_such_module",), "nobody[serve]", lambda room, folder: Order(("false",), "", ""))
BROKEN = Kind("Broken", (), "", lambda room, folder: Order((sys.executable, "-c", "raise OSError('no disk')"), "", ""))


@pytest.mark.timeout(300)
def test_servers_beside_each_other_say_the_same_to_the_same_client() -> None:
    said: list[str] = []
    kinds = [kind for kind in (OURS, LLAMACPP, ABSENT, BROKEN) if kind is not LLAMACPP or not kind.missing]
    found = race(1, 1, said.append, kinds, streams=4, tokens=64)
    assert [side.name for side in found.sides] == [kind.name for kind in kinds if kind not in (ABSENT, BROKEN)]
    for side in found.sides:
        assert (side.asked, side.same, side.failures) == (4, 4, ())
        assert 0 < side.ttft.p50 <= side.ttft.p95 <= side.e2e.p95
        assert 0 < side.itl.p50 <= side.itl.p95
        assert side.throughput > 0
    assert found.missing == (
        "Nobody: no_such_module missing; pip install nobody[serve]",
        "Broken ended: OSError: no disk",
    )
    assert said[0] == "starting Batchscope"
    assert said[-1].startswith("round 1 of 1: ")
    text = found.text()
    assert "| Batchscope | " in text
    assert text.endswith("\n".join(found.missing))
    assert not found.failed


@pytest.mark.timeout(300)
def test_what_http_costs() -> None:
    cost = measure(1, 1, lambda words: None, streams=4, tokens=24)
    assert (cost.streams, cost.tokens, cost.threads) == (4, 24, 1)
    assert 4 < cost.events <= 4 * 26
    assert cost.served > 0
    assert cost.share == cost.served / cost.headless
    assert "4 streams of 24 tokens" in cost.text()


def port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def test_what_is_no_whole_answer_is_a_failure() -> None:
    whole = event("a") + event("bc") + event("", '"length"', USAGE)
    with clients() as asking:
        for told, why in (
            (whole, ""),
            (event("a"), "None of 7 tokens came"),
            (event("a", '"stop"', USAGE.replace("7", "6")), "6 of 7 tokens came, and it ended with stop"),
            ('data: {"error": {"message": "out of blocks"}}\n\n', "out of blocks"),
        ):
            with answering(told) as server:
                heard = asking.ask(Asked(port(server), "/v1/completions", [{}, {}], 7))
            assert len(heard.failures) == (2 if why else 0)
            assert all(why in each for each in heard.failures)
            assert (heard.tokens, heard.texts) == ((0, ["", ""]) if why else (14, ["abc", "abc"]))
        with answering("no", status=503) as server:
            (why,) = asking.ask(Asked(port(server), "/v1/completions", [{}], 7)).failures
            assert "refuses (503)" in why
        with answering(whole, promised=len(whole) + 9) as server:
            (why,) = asking.ask(Asked(port(server), "/v1/completions", [{}], 7)).failures
            assert "peer" in why
        (why,) = asking.ask(Asked(9, "/v1/completions", [{}], 7)).failures
        assert why.startswith("no connection")


@pytest.mark.timeout(300)
def test_ctrl_c_ends_every_server_and_the_client() -> None:
    order = [sys.executable, "-m", "app", "bench", "--serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(order, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as bench:
        assert bench.stderr is not None
        assert bench.stderr.readline() == "starting Batchscope\n"
        begun: set[psutil.Process] = set()
        until = time.monotonic() + 200
        while len(begun) < 2:  # the client and the first server, at least
            assert time.monotonic() < until
            begun |= set(psutil.Process(bench.pid).children(recursive=True))
            time.sleep(0.01)
        bench.send_signal(signal.SIGINT)
        assert bench.wait(100) == 130
    assert not [each for each in begun if each.is_running()]


def test_a_soak_without_a_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--soak", "5"]) == 2
    assert "soak=5: give --serve with it" in capsys.readouterr().err
