"""batchscope compress, as a person meets it."""

import io
import json
from pathlib import Path

import pytest

from app.__main__ import main
from app.cli.compress import PLAIN, STRUCK, as_text
from app.compression.words import runs_of
from engine.compression import Compressed, Piece

STORY = "Once upon a time there was a brave fox. The fox found a golden violin.\n\nTell me a story about a fox."
FAST = ["--threads", "1", "--kv-memory", "16M"]


def test_a_prompt_is_compressed_and_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": STORY}]))
    assert main(["compress", "--file", str(file), "--ratio", "0.4", "--answer", "8", "--json", *FAST]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens_after"] < told["tokens_before"]
    assert "".join(piece["text"] for piece in told["pieces"]) == STORY
    assert told["effect"]["saved"] == told["tokens_before"] - told["tokens_after"]
    assert told["effect"]["kl"] >= 0
    assert len(told["effect"]["before"]["ttft"]) == 3


def test_the_prompt_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(STORY))
    assert main(["compress", "--unit", "sentences", "--answer", "4", *FAST]) == 0
    printed = capsys.readouterr().out
    assert "~~" in printed
    assert "Tell me a story about a fox." in printed
    assert "time to first token" in printed
    assert "lower bound" in printed


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["a", "--method", "fields"], "--fields: are what --method fields fills in"),
        (["a", "--fields", "who", "--method", "summary"], "--fields: are what"),
        (["a", "--file", "b"], "--file: a prompt is given too"),
        (["--file", "nowhere.txt"], "cannot read nowhere.txt"),
        (["a", "--model", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_told_before_anything_is_loaded(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compress", *given]) == 2
    assert told in capsys.readouterr().err


def made(*pieces: tuple[str, bool]) -> Compressed:
    found = tuple(Piece(0, text, 1.0, 1, False) for text, _ in pieces)
    return Compressed("information", "", "", found, tuple(kept for _, kept in pieces), "", 3, 2, "demo", 0.1)


def test_what_is_struck_out_is_struck_through(monkeypatch: pytest.MonkeyPatch) -> None:
    some = made(("A", True), (" brave", False), (" old", False), (" fox", True))
    assert runs_of(some.pieces, some.kept) == [("A", True), (" brave old", False), (" fox", True)]
    assert as_text(some, None, "demo").startswith("A ~~brave old~~ fox\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert as_text(some, None, "demo").startswith(f"A {STRUCK}brave old{PLAIN} fox\n")
