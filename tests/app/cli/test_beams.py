"""Beam search from the command line."""

import json
from pathlib import Path

import pytest

from app.__main__ import main

ASKED = ["--max-tokens", "24", "--beams", "3", "--length-penalty", "0.6", "--early-stopping", "never", "--threads", "1"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("Tell me a story about a fox and a kite.\n", "utf-8")
    return path


def test_a_run_with_beams_prints_its_texts_best_first(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--prompts", str(prompts), *ASKED, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    scores = [answer["score"] for answer in answers]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert main(["run", "--prompts", str(prompts), *ASKED, "--texts"]) == 0
    out = capsys.readouterr().out
    for answer in answers:
        assert f"({answer['score']:.4f}) {answer['text']}" in out


def test_what_a_search_cannot_be_is_refused(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--prompts", str(prompts), "--beams", "2", "--n", "2"]) != 0
    assert "leave n at 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "--prompts", str(prompts), "--early-stopping", "soon"])
