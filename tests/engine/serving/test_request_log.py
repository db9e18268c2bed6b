"""One row a request, in a real database, whatever happens to it meanwhile."""

import json
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.__main__ import main
from engine import EngineProcess, InvalidInput
from engine.serving import RequestLogSettings, ServingSettings
from engine.serving.request_log import RequestLog, columns, database
from engine.serving.request_log.spool import Spool
from tests.engine.serving.conftest import calling
from tests.engine.serving.request_logs import Postgres, facts, rows_of
from tests.waiting import until

ROOT = Path(__file__).parents[3]
BODY: dict[str, Any] = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": True}
CHAT: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "Tell me of a fox."}]}


def settings(folder: Path, url: str = "", **more: Any) -> RequestLogSettings:
    return RequestLogSettings(url or str(folder / "requests.db"), folder / "requests.spool", **more)


@contextmanager
def logged(engine: EngineProcess, folder: Path, url: str = "", **more: Any) -> Iterator[httpx2.Client]:
    with calling(engine, ServingSettings(port=0, request_log=settings(folder, url, **more))) as http:
        yield http


def test_a_row_tells_what_the_client_was_told(engine: EngineProcess, tmp_path: Path) -> None:
    with logged(engine, tmp_path) as http:
        one = http.post(
            "/v1/completions", json=BODY | {"n": 2, "stop": ["zebra"], "temperature": 0.5, "seed": 3}
        ).json()
        asked = CHAT | {"max_tokens": 6, "stream": True, "stream_options": {"include_usage": True}}
        events = http.post("/v1/chat/completions", json=asked).text.split("\n\n")
        last = json.loads(events[-3].removeprefix("data: "))
        refused = http.post("/v1/completions", json=BODY | {"max_tokens": 0})
        other = http.post("/v1/completions", json=BODY | {"model": "a secret"})
    first, second, third, fourth = rows_of(str(tmp_path / "requests.db"))
    assert (first["id"], second["id"]) == (one["id"], last["id"])
    assert [row["status"] for row in (third, fourth)] == [refused.status_code, other.status_code] == [400, 404]
    assert [row["error"] for row in (third, fourth)] == ["invalid_value: max_tokens", "model_not_found: model"]
    for row, usage in ((first, one["usage"]), (second, last["usage"])):
        assert (row["prompt_tokens"], row["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert 0 <= row["queue_seconds"] <= row["ttft_seconds"] <= row["latency_seconds"] < 30
        assert (row["status"], row["error"]) == (200, None)
        assert abs(row["time"].timestamp() - time.time()) < 86_400
    assert first["parameters"] == {
        "max_tokens": 4,
        "temperature": 0.5,
        "seed": 3,
        "n": 2,
        "ignore_eos": True,
        "stop": 1,
    }
    assert first["finish_reasons"] == ["length", "length"]
    assert [row["stream"] for row in (first, second)] == [False, True]
    assert {row["prompts"] for row in (first, second, third, fourth)} == {None}
    assert stat.S_IMODE((tmp_path / "requests.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "requests.spool").stat().st_mode) == 0o600


def test_texts_are_kept_when_that_is_asked(engine: EngineProcess, tmp_path: Path) -> None:
    with logged(engine, tmp_path, text=True) as http:
        answer = http.post("/v1/completions", json=BODY | {"n": 2, "stop": ["zebra"]}).json()
        http.post("/v1/completions", json=BODY | {"prompt": [[5, 6, 7]], "max_tokens": 1})
    first, second = rows_of(str(tmp_path / "requests.db"))
    assert first["prompts"] == [BODY["prompt"]]
    assert first["texts"] == [choice["text"] for choice in answer["choices"]]
    assert first["parameters"]["stop"] == ["zebra"]
    assert second["prompts"] == [[5, 6, 7]]


def test_the_last_rows_are_shown_on_the_command_line(
    engine: EngineProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "requests.db")
    assert main(["requests", path]) == 2
    assert "requests.db: there is no request log" in capsys.readouterr().err
    with logged(engine, tmp_path) as http:
        for most in (1, 2, 0, 3):
            http.post("/v1/completions", json=BODY | {"max_tokens": most})
    assert main(["requests", path, "--last", "3"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == "time, UTC key route status prompt cached output queue TTFT latency ends".split()
    assert [line.split()[4] for line in lines] == ["200", "400", "200"]
    assert [line.split()[-1] for line in lines] == ["length", "max_tokens", "length"]
    assert main(["requests", path, "--json"]) == 0
    assert [row["output_tokens"] for row in json.loads(capsys.readouterr().out)] == [1, 2, 0, 3]
    (tmp_path / "text.db").write_text("a shopping list\n" * 100)
    assert main(["requests", str(tmp_path / "text.db")]) == 2
    assert "text.db cannot be read as a request log: DatabaseError: file is not" in capsys.readouterr().err


def test_a_client_that_goes_away_has_a_row_that_says_so(engine: EngineProcess, tmp_path: Path) -> None:
    with (
        logged(engine, tmp_path) as http,
        http.stream("POST", "/v1/completions", json=BODY | {"max_tokens": 900, "stream": True}) as answer,
    ):
        next(answer.iter_lines())
    (row,) = rows_of(str(tmp_path / "requests.db"))
    assert (row["status"], row["error"], row["finish_reasons"]) == (499, "client_left", ["abort"])
    assert 0 < row["output_tokens"] < 900


def under_load(http: httpx2.Client, meanwhile: Callable[[], None]) -> set[str]:
    """The ids of what was answered by four clients while something happened, and some more."""
    answered: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answer = http.post("/v1/completions", json=BODY | {"max_tokens": 1})
            assert answer.status_code == 200
            answered.append(answer.json()["id"])

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        meanwhile()
    finally:
        over.set()
        for client in clients:
            client.join(30)
    return set(answered)


def gauge(http: httpx2.Client, name: str) -> float:
    (line,) = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"batchscope:{name} ")]
    return float(line.split()[-1])


def test_while_the_database_is_locked_answers_go_on_and_no_row_is_lost_or_twice(
    engine: EngineProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    path = tmp_path / "requests.db"
    with logged(engine, tmp_path) as http:

        def hold() -> None:
            time.sleep(0.2)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                until(lambda: gauge(http, "request_log_up") == 0)
                until(lambda: gauge(http, "request_log_spool_bytes") > 10_000)
            until(lambda: gauge(http, "request_log_up") == 1)

        ids = under_load(http, hold)
        until(lambda: gauge(http, "request_log_spool_bytes") == 0)
        assert 'batchscope:request_log_rows_total{outcome="dropped"} 0.0' in http.get("/metrics").text
    found = [row["id"] for row in rows_of(str(path))]
    assert len(found) == len(ids) > 20
    assert set(found) == ids


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    place = found[-1] if found else shutil.which("initdb")
    if place is None:
        pytest.skip("no PostgreSQL is installed: apt-get install postgresql")
    server = Postgres(Path(place).parent)
    yield server
    server.close()


def test_postgresql_is_killed_twice_under_load_and_no_row_is_lost_or_twice(
    engine: EngineProcess, tmp_path: Path, postgres: Postgres
) -> None:
    with postgres, logged(engine, tmp_path, postgres.url) as http:
        before = {row["id"] for row in rows_of(postgres.url)}  # of the tests that ran before

        def kill() -> None:
            for _ in range(2):
                time.sleep(0.2)
                postgres.stop()
                until(lambda: gauge(http, "request_log_up") == 0)
                postgres.start()
                until(lambda: gauge(http, "request_log_up") == 1)

        ids = under_load(http, kill)
        until(lambda: gauge(http, "request_log_spool_bytes") == 0)
        found = [row["id"] for row in rows_of(postgres.url) if row["id"] not in before]
    assert len(found) == len(ids) > 20
    assert set(found) == ids


def test_while_postgresql_hangs_answers_go_on(
    engine: EngineProcess,
    tmp_path: Path,
    postgres: Postgres,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 1)
    with postgres, logged(engine, tmp_path, postgres.url) as http:
        first = http.post("/v1/completions", json=BODY).json()["id"]
        until(lambda: gauge(http, "request_log_spool_bytes") == 0)
        with postgres.halted():
            ids, waits = [first], []
            for _ in range(20):
                begun = time.monotonic()
                ids.append(http.post("/v1/completions", json=BODY | {"max_tokens": 1}).json()["id"])
                waits.append(time.monotonic() - begun)
                time.sleep(0.02)
            assert sorted(waits)[10] < 1, "nobody waits for the database"
            assert max(waits) < 20
            assert gauge(http, "request_log_spool_bytes") > 5_000
        until(lambda: gauge(http, "request_log_spool_bytes") == 0)
        assert main(["requests", postgres.url, "--json", "--last", "21"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == ids
    assert all(row["time"].endswith("+00:00") for row in rows)


def test_postgresql_takes_whatever_a_client_can_write(tmp_path: Path, postgres: Postgres) -> None:
    odd = ["nul \0 and half a pair \ud800", "é漢🦊", '"\\\n']
    with postgres:
        log = RequestLog(settings(tmp_path, postgres.url, text=True))
        log.take([facts(7, prompts=odd, texts=("a\0b",)), facts(8, id="x" * 65), facts(9)])
        until(lambda: log.spool.pending == 0)
        log.close()
        kept = {row["id"]: row for row in rows_of(postgres.url)}
    assert (log.written, log.refused) == (2, 1), "an id that is too long is refused, and holds nothing up"
    assert kept["cmpl-000007"]["prompts"] == ["nul � and half a pair ?", *odd[1:]]
    assert kept["cmpl-000007"]["texts"] == ["a�b"]
    assert kept["cmpl-000009"]["time"].timestamp() == 1.7e9 + 9


WRITER = """
import sys
from pathlib import Path
from engine.serving import RequestLogSettings
from engine.serving.request_log import RequestLog
from tests.engine.serving.request_logs import facts
log = RequestLog(RequestLogSettings(sys.argv[1], Path(sys.argv[2])))
for number in range(10**6):
    log.take([facts(number)])
    print(number, flush=True)
"""


@pytest.mark.parametrize("away", [False, True])
def test_a_killed_servers_rows_are_written_by_the_next_one(tmp_path: Path, away: bool) -> None:
    path = tmp_path / "requests.db"
    url = "postgresql://batchscope@127.0.0.1:1/none" if away else str(path)
    order = [sys.executable, "-c", WRITER, url, str(tmp_path / "requests.spool")]
    with subprocess.Popen(order, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(1500)]
        with pytest.raises(InvalidInput, match="the spool of a server that runs"):
            Spool(tmp_path / "requests.spool", 1000)
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
    log = RequestLog(settings(tmp_path))
    until(lambda: log.spool.pending == 0)
    log.close()
    found = [row["id"] for row in rows_of(str(path))]
    assert len(found) == len(set(found))
    assert {facts(number).id for number in told} <= set(found)
    assert len(found) <= len(told) + 1


def test_a_full_spool_keeps_the_oldest_rows_and_counts_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = "postgresql://batchscope:hunter2secret@127.0.0.1:1/none?password=hunter3secret&sslmode=prefer"
    log = RequestLog(settings(tmp_path, where, spool_bytes=4_000))
    log.take([facts(number) for number in range(50)])
    log.take([facts(99)])
    kept, _ = log.spool.read(100)
    assert 5 < len(kept) < 50
    assert [row["id"] for row in kept] == [facts(number).id for number in range(len(kept))]
    assert log.dropped == 51 - len(kept)
    log.close()
    assert "rows were dropped" in caplog.text
    assert "is away" in caplog.text
    assert "sslmode=prefer" in log.database.name
    assert "secret" not in caplog.text + log.database.name
    assert (tmp_path / "requests.spool").stat().st_size <= 4_000


def test_lines_of_a_spool_that_were_cut_or_changed_are_passed_by(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path, 1 << 20)
    assert spool.append([{"id": str(number)} for number in range(4)]) == 4
    spool.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"1", b"7") + b"\xff\n" + lines[2] + lines[3][:-4])
    spool = Spool(path, 1 << 20)
    spool.append([{"id": "after"}])
    rows, place = spool.read(10)
    assert [row["id"] for row in rows] == ["0", "2", "after"]
    spool.advance(place)
    assert (spool.pending, path.stat().st_size) == (0, 0)
    big = {"id": "x" * (3 << 20)}
    spool.most = 8 << 20
    assert spool.append([big, {"id": "y"}]) == 2
    assert spool.read(1)[0] == [big], "a row may be longer than what is read at once"
    spool.close()


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    log = RequestLog(settings(tmp_path))
    log.take([facts(1)])
    until(lambda: log.written == 1)
    for part in tmp_path.glob("requests.db*"):
        part.rename(tmp_path / f"old-{part.name}")
    log.take([facts(2)])
    until(lambda: log.written == 2)
    log.close()
    assert [row["id"] for row in rows_of(str(tmp_path / "requests.db"))] == [facts(2).id]
    assert [row["id"] for row in rows_of(str(tmp_path / "old-requests.db"))] == [facts(1).id]


def test_a_row_of_another_version_or_of_no_sense_holds_nothing_up(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "requests.spool", 1 << 20)
    spool.append([{"id": "old", "unheard_of": 1}])
    spool.close()
    log = RequestLog(settings(tmp_path))
    log.take([facts(1), facts(2, output_tokens=2**70), facts(3)])
    until(lambda: log.spool.pending == 0)
    log.close()
    assert (log.written, log.refused) == (2, 2)
    assert [row["id"] for row in rows_of(str(tmp_path / "requests.db"))] == [facts(1).id, facts(3).id]


def test_a_spool_that_somebody_empties_is_used_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1 << 20)
    spool.append([{"id": "lost"}])
    (tmp_path / "spool").write_bytes(b"")
    rows, place = spool.read(10)
    assert rows == []
    spool.advance(place)
    spool.append([{"id": "kept"}])
    assert spool.read(10)[0] == [{"id": "kept"}]
    spool.close()


def test_what_can_be_mended_is_told_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("a shopping list\n" * 100)
    with pytest.raises(InvalidInput, match=r"text\.db.*not a database"):
        RequestLog(settings(tmp_path, str(tmp_path / "text.db")))
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE requests (id TEXT, what TEXT)")
    with pytest.raises(InvalidInput, match=r"other\.db is another's: it has no time, key_name"):
        RequestLog(settings(tmp_path, str(tmp_path / "other.db")))
    for url, words in (
        ("mysql://a@b/c", "request_log=mysql: name a file"),
        ("sqlite://", "name a file"),
        ("://", "it is no URL"),
    ):
        with pytest.raises(InvalidInput, match=words):
            RequestLog(settings(tmp_path, url))
    log = RequestLog(settings(tmp_path))  # the spool was let go each time
    log.close()
    assert "prompts" in columns()
