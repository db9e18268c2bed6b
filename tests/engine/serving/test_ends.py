"""What becomes of requests whose client goes away, and of those that run when the server is told to end."""

import socket
import threading
from contextlib import AbstractContextManager
from typing import Any

import httpx2
import pytest

from engine import EngineProcess
from engine.serving import Server, ServingSettings
from engine.trace import Ended, FinishReason, Step, Submitted
from tests.engine.serving.conftest import kept, serving
from tests.waiting import until

LONG: dict[str, Any] = {"model": "demo", "prompt": "Once", "max_tokens": 900, "ignore_eos": True}


def submitted(engine: EngineProcess) -> list[int]:
    return [record.request for record in kept(engine) if isinstance(record, Submitted)]


def ends_of(engine: EngineProcess, request: int) -> list[Ended]:
    return [r for r in kept(engine) if isinstance(r, Ended) and r.request == request]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_goes_away_ends_its_request_and_gives_its_blocks_back(
    server: Server, engine: EngineProcess, streamed: bool
) -> None:
    known = set(submitted(engine))
    host, _, port = server.address.removeprefix("http://").partition(":")
    body = str(LONG | {"n": 2, "stream": streamed}).replace("'", '"').replace("True", "true").replace("False", "false")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall((head + body).encode())
        until(lambda: set(submitted(engine)) - known)
        request = max(submitted(engine))
        until(lambda: any(isinstance(r, Step) and request in r.request for r in kept(engine)[-20:]))
        assert not ends_of(engine, request)
    until(lambda: len(ends_of(engine, request)) == 2)
    records = kept(engine)
    assert {end.reason for end in ends_of(engine, request)} == {FinishReason.CANCELLED}
    until(lambda: _free(engine) == engine.trace.header.blocks)
    counted = [r for r in records if isinstance(r, Step) and request in r.request]
    assert len(counted) < 890, "it did not run to its end"


def _free(engine: EngineProcess) -> int:
    last = [record for record in kept(engine) if isinstance(record, Step)][-1]
    return last.free_blocks + last.cached_blocks


def test_hundreds_that_go_away_leave_nothing_open(server: Server, engine: EngineProcess, http: httpx2.Client) -> None:
    host, _, port = server.address.removeprefix("http://").partition(":")
    body = b'{"model": "demo", "prompt": "Once", "max_tokens": 50, "stream": true}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for number in range(200):
        with socket.create_connection((host, int(port))) as client:
            client.sendall((head + body)[: len(head) + len(body) - (number % 3) * 20])
    until(lambda: _gauge(http, "num_requests_running") == _gauge(http, "num_requests_waiting") == 0)
    assert http.post("/v1/completions", json=LONG | {"max_tokens": 2, "n": 40}).status_code == 200, "nothing is held"
    until(lambda: _free(engine) == engine.trace.header.blocks)


def _gauge(http: httpx2.Client, name: str) -> float:
    (line,) = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"vllm:{name}{{")]
    return float(line.rpartition(" ")[2])


def test_a_server_that_ends_takes_no_more_and_finishes_what_runs(engine: EngineProcess) -> None:
    with serving(engine, ServingSettings(port=0)) as server:
        lines: list[str] = []
        begun = threading.Event()

        def read() -> None:
            url, body = f"{server.address}/v1/completions", LONG | {"stream": True}
            with httpx2.stream("POST", url, json=body, timeout=60, trust_env=False) as answer:
                for line in answer.iter_lines():
                    lines.append(line)
                    begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(30)
        server.stop()

        def refused() -> bool:
            try:
                httpx2.get(f"{server.address}/health", trust_env=False)
            except httpx2.ConnectError:
                return True
            except (httpx2.ReadError, httpx2.RemoteProtocolError):  # it had come just before the door was shut
                pass
            return False

        until(refused)
        assert reader.is_alive(), "the stream goes on"
        reader.join(60)
    assert [line for line in lines if line][-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in "".join(lines)


def test_more_than_the_queue_holds_come_later(server: Server, http: httpx2.Client) -> None:
    def streaming(samples: int) -> AbstractContextManager[httpx2.Response]:
        return http.stream("POST", "/v1/completions", json=LONG | {"n": samples, "stream": True})

    with streaming(32) as running, streaming(8) as waiting:
        assert (running.status_code, waiting.status_code) == (200, 200)
        late = http.post("/v1/completions", json=LONG)
        assert (late.status_code, late.headers["retry-after"]) == (429, "1")
