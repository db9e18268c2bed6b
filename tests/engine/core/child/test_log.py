"""What the engine's process logs is logged here; where it was when it aborted is told."""

import logging
import os
import signal
import tempfile
from pathlib import Path

import pytest

from engine import EngineConfig, EngineProcess, ModelSpec
from engine.core.child.log import Stacks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def stacks_of_an_aborted_engine(folder: Path) -> str:
    with EngineProcess(ModelSpec("demo"), EngineConfig(max_running=2), threads=1) as engine:
        assert not list(folder.iterdir()), "the file of the stacks has no name any more"
        os.kill(engine.pid, signal.SIGSEGV)
        engine._receiver.join(60)
        assert "SIGSEGV" in engine.error
        return engine.stacks


def test_what_the_child_logs_is_logged_here_and_its_stacks_are_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stacks = stacks_of_an_aborted_engine(folder)
    said = [(r.name, r.levelno, r.processName) for r in caplog.records if "is loaded" in r.getMessage()]
    assert said == [("engine", logging.INFO, "engine")]
    assert stacks.startswith("Fatal Python error: Segmentation fault")
    if (
        "engine/core/child/host.py" not in stacks
    ):  # another thread that happens to run while its frames are read cuts them
        assert "engine/core/child/host.py" in stacks_of_an_aborted_engine(folder)


def test_of_a_child_that_never_began_no_file_is_left(folder: Path) -> None:
    stacks = Stacks()
    assert stacks.path.exists()
    assert stacks.close() == ""
    assert stacks.close() == ""
    assert not list(folder.iterdir())
