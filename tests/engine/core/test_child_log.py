"""What the engine's process logs is logged here; where it was when it aborted is told."""

import logging
import os
import signal
import tempfile
from pathlib import Path

import pytest

from engine import EngineConfig, EngineProcess, ModelSpec
from engine.core.child_log import Stacks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_the_child_logs_is_logged_here_and_its_stacks_are_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EngineProcess(ModelSpec("demo"), EngineConfig(max_running=2), threads=1) as engine:
        said = [(r.name, r.levelno, r.processName) for r in caplog.records if "is loaded" in r.getMessage()]
        assert said == [("engine", logging.INFO, "engine")]
        assert not list(folder.iterdir()), "the file of the stacks has no name any more"
        os.kill(engine.pid, signal.SIGSEGV)
        for thread in (engine._receiver,):
            thread.join(60)
        assert "SIGSEGV" in engine.error
        assert engine.stacks.startswith("Fatal Python error: Segmentation fault")
        assert "engine/core/host.py" in engine.stacks


def test_of_a_child_that_never_began_no_file_is_left(folder: Path) -> None:
    stacks = Stacks()
    assert stacks.path.exists()
    assert stacks.close() == ""
    assert stacks.close() == ""
    assert not list(folder.iterdir())
