"""Serving and its keys as a person meets them on the command line."""

import json
import signal
import sqlite3
import stat
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from app.__main__ import main
from engine.remote import RemoteEngine, ServerAddress
from engine.serving import KeyFile, made_key
from tests.commands import Command

SERVE = ["app", "serve", "--port", "0", "--threads", "1"]


def test_keys_are_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kept" / "keys.json"

    def said(*words: str, status: int = 0) -> str:
        assert main(["key", *words, "--keys", str(file)]) == status
        told = capsys.readouterr()
        return told.out + told.err

    assert said("list") == f"no keys in {file}\n"
    first, second = said("new", "--name", "ann").strip(), said("new").strip()
    assert first != second
    assert first.startswith("bs-")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = file.read_text()
    assert first not in written
    assert second not in written
    assert [line.split("  ")[1] for line in said("list").splitlines()] == ["ann", "key 1"]
    assert "name='ann': another key has this name" in said("new", "--name", "ann", status=2)
    assert said("revoke", "--name", "ann") == "ann is revoked\n"
    assert "there is no such key" in said("revoke", "--name", "ann", status=2)
    assert "name the key with --name" in said("revoke", status=2)
    assert [key["name"] for key in json.loads(file.read_text())["keys"]] == ["key 1"]
    file.write_text("[]")
    assert f"{file} is no file of keys" in said("list", status=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "host=0.0.0.0: others can reach this address"),
        (["--host", "no.such.host.invalid", "--keys", "/nowhere"], "no.such.host.invalid: "),
        (["--port", "70000"], "port=70000: must be a whole number from 0 to 65,535"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--jwks", "/nowhere"], "name --jwt-issuer and --jwt-audience"),
        (["--jwks", "/no/jwks", "--jwt-issuer", "a", "--jwt-audience", "b"], "/no/jwks cannot be read"),
        (["--tls-cert", "/no/cert", "--tls-key", "/no/key"], "tls_certificate='/no/cert': there is no such file"),
        (["--cors", "app.example"], "cors='app.example': give a page's origin"),
        (["--allow-host", "http://a"], "allow_host='http://a': give a name"),
        (["--max-replicas", "3"], "max_replicas=3: give --ray with it"),
        (["--replicas", "2", "--mode", "static"], "mode='static': its requests could not go on at another replica"),
        (["--keys", "/nowhere", "--control", "ann"], "control=ann: no key is asked for here"),
        (["--log-text"], "are the request log's; ask for it with --request-log"),
        (["--request-log", "mysql://a:b@c/d"], "request_log=mysql: name a file (SQLite)"),
        (["--request-log", "/proc/none/requests.db"], "=/proc/none/requests.db: No such file or directory; name"),
        (["--request-log", "log.db", "--log-spool", "/proc/none/spool"], "spool /proc/none/spool cannot be"),
        (["--otlp-text"], "say where they go with --otlp URL"),
        (["--otlp", "collector:4317"], "otlp='collector:4317': give a URL"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_loaded(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--port", "0", *words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.timeout(240)
def test_it_says_its_address_answers_and_ends_with_what_runs(tmp_path: Path) -> None:
    order = [*SERVE, "--keys", str(tmp_path / "none"), "--request-log", str(tmp_path / "requests.db")]
    with Command(order) as server:
        try:
            line = server.stdout.readline()
            assert line.startswith("serving demo at http://127.0.0.1:")
            assert line.endswith("/v1; no key is asked for\n")
            url = line.split()[3].rstrip(";")
            body = {"model": "demo", "prompt": "Once", "max_tokens": 600, "ignore_eos": True, "stream": True}
            asked = urllib.request.Request(f"{url}/completions", json.dumps(body).encode())
            with urllib.request.urlopen(asked) as stream:
                assert b"text_completion" in stream.readline()
                server.send_signal(signal.SIGTERM)
                rest = stream.read()
            assert rest.endswith(b"data: [DONE]\n\n")
            assert server.wait(60) == 0
            with closing(sqlite3.connect(tmp_path / "requests.db")) as log:
                (row,) = log.execute("SELECT output_tokens, status, prompts FROM requests")
            assert row == (600, 200, None), "what ended while the server did is in the log"
            with pytest.raises(urllib.error.URLError):
                urllib.request.urlopen(f"{url}/models")
        finally:
            server.kill()


@pytest.mark.timeout(240)
def test_it_opens_a_window_beside_itself_which_has_control_and_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    told, kept = made_key("ann")
    KeyFile(file).add(kept)
    order = [*SERVE, "--window", "--control", "ann", "--keys", str(file)]
    with Command(order, DISPLAY=":0", QT_QPA_PLATFORM="offscreen", BATCHSCOPE_DATA=str(tmp_path)) as server:
        try:
            url = server.stdout.readline().split()[3].removesuffix("/v1")
            beside = started(server.pid)
            with RemoteEngine(ServerAddress(url, told)) as remote:
                assert 'the window of "this server\'s window" has control' in remote.status.observes
            assert not [word for word in beside.cmdline() if word.startswith("bs-")], "other users see arguments"
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
            assert not beside.is_running()
        finally:
            server.kill()


def started(server: int) -> psutil.Process:
    """The window beside a server, once it is connected to it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(server).children():
            if "--connect" in child.cmdline() and any(c.status == "ESTABLISHED" for c in child.net_connections()):
                time.sleep(1)  # in which it says what it wants
                return child
        time.sleep(0.1)
    raise TimeoutError


def test_a_window_is_opened_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    key = tmp_path / "key"
    for words, told in (
        (["serve", "--port", "0", "--window"], "window: there is no display"),
        (["--connect", "http://127.0.0.1:1"], "connect: there is no display"),
        (["--connect", "nonsense://x"], "server='nonsense://x': give its address"),
        (["--connect", "127.0.0.1:1", "--key-file", str(key)], "the file cannot be read"),
        (["--connect", "127.0.0.1:1", "--model", "demo"], "model=demo: a server has its own"),
        (["--key-file", str(key)], "name that with --connect URL"),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err
