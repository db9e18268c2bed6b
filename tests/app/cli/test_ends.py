"""However a command ends, it says why in a line, with the right status, and leaves no process behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import psutil
import pytest

from app.interrupts import heard, uninterrupted
from engine import load_trace

ROOT = Path(__file__).parents[3]
DRAFT = ("--model", "demo-draft", "--threads", "1")
pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def begin(command: Sequence[str], **given: object) -> subprocess.Popen[str]:
    """The command line in a process and a group of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "PYTHONIOENCODING")}
    environment |= given.pop("environment", {})  # type: ignore[operator]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | given
    line = [sys.executable, "-m", "app", *command]
    return subprocess.Popen(line, cwd=ROOT, env=environment, text=True, start_new_session=True, **options)  # type: ignore[call-overload,no-any-return]


def left(group: int) -> list[psutil.Process]:
    """What still runs of a group of processes."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=120)
    deadline = time.monotonic() + 20
    while left(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left(process.pid) == []
    assert "Traceback" not in error, error
    assert "Exception ignored" not in error, error
    return process.returncode, out, error


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("Erzähl mir von einem Bären\n")
    return path


@pytest.mark.parametrize("command", [("fit", "demo"), ("run", *DRAFT, "--max-tokens", "2")])
def test_a_full_disk_is_told_and_a_reader_that_has_seen_enough_is_not(command: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "w") as full, os.fdopen(write, "w") as unread:
        to_full, to_nobody = begin(command, stdout=full), begin(command, stdout=unread)  # side by side
        status, _, error = ended(to_full)
        assert (status, error.splitlines()[-1]) == (1, "batchscope: No space left on device")
        assert ended(to_nobody)[::2] == (0, "")


def test_without_standard_files_nothing_is_printed_into_the_run(prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.bsrun"
    command = ["run", *DRAFT, "--max-tokens", "2", "--prompts", str(prompts), "--out", str(out)]

    def close() -> None:
        for number in (0, 1, 2):
            os.close(number)

    status, printed, _ = ended(begin(command, preexec_fn=close))
    assert status == 0
    assert printed == ""
    assert [len(view.samples[0].tokens) for view in load_trace(out).requests.values()] == [2]


def test_ascii_and_a_home_that_nothing_can_be_written_to_are_no_hindrance_and_json_loses_nothing(prompts: Path) -> None:
    poor = dict.fromkeys(("HOME", "HF_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "BATCHSCOPE_DATA"), "/proc/nowhere")
    poor |= {"PYTHONIOENCODING": "ascii", "PYTHONPROFILEIMPORTTIME": "1"}
    command = ["run", *DRAFT, "--max-tokens", "2", "--prompts", str(prompts), "--json"]
    fit, run = (begin(line, environment=poor) for line in (["fit", "demo"], command))
    status, out, _ = ended(fit)
    assert status == 0
    assert "2 ? bytes ? layers" in out
    status, out, error = ended(run)
    imported = [line for line in error.splitlines() if line.startswith("import time:")]
    assert (status, imported) == (0, error.splitlines()), "nothing else is said"
    assert [line for line in imported if line.endswith(" torch")]
    assert not [line for line in imported if line.endswith("torch._dynamo")], "a compiler that no engine needs"
    assert json.loads(out)["answers"][0]["prompt"] == "Erzähl mir von einem Bären"


def test_the_demo_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, _, error = ended(begin(DRAFT[:2], environment={"BATCHSCOPE_DATA": str(tmp_path / "file" / "data")}))
    assert status == 2
    assert f"batchscope: cannot write to the folder {tmp_path / 'file' / 'data' / 'demo'}" in error
    assert error.endswith(": Not a directory; set BATCHSCOPE_DATA to another\n")


ENDLESS = {  # commands, and the seconds in which they begin and do their work here
    ("run", *DRAFT, "--max-tokens", "900", "--ignore-eos", "--repeat", "50", "--out", "OUT/a.bsrun"): 5.0,
    ("quantize", "demo", "--out", "OUT"): 5.0,
    ("--model", "demo-draft"): 5.0,
    ("compare", *DRAFT, "--lanes", "recompute,static:2", "--workload", "long-prompt"): 5.0,
    ("sweep", *DRAFT, "--sizes", "1", "--workload", "long-prompt"): 5.0,
}


def test_ctrl_c_at_any_moment_ends_a_command_with_a_line_and_no_process(tmp_path: Path) -> None:
    def interrupted(command: tuple[str, ...]) -> None:
        folder = tmp_path / command[0]
        folder.mkdir()
        given = [part.replace("OUT", str(folder)) for part in command]
        process = begin(given, environment={"BATCHSCOPE_DATA": str(folder / "data")})
        time.sleep(Random(command[0]).uniform(0.15, ENDLESS[command]))
        begun = time.monotonic()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            status, _, error = ended(process)
            assert status == 130, (command, error)
            assert error.splitlines()[-1].startswith("batchscope: stopped"), command
            assert time.monotonic() - begun < 60, command
        else:
            assert ended(process)[0] == 0, command

    with ThreadPoolExecutor(2) as pair:  # as many at once as CI has cores
        list(pair.map(interrupted, ENDLESS))


def swallows(reached: list[str]) -> None:
    """As a library does that is interrupted in the midst of its import."""
    with heard():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            reached.append("too far")
        reached.append("after it was swallowed")


def frees(reached: list[str]) -> None:
    """As where an object is freed whose class says what happens then: Python cannot raise anything there."""

    class Freed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with heard():
        one = Freed()
        del one
        reached.append("after an object was freed")


def waits(reached: list[str]) -> None:
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        reached.append("while it waits")


def test_ctrl_c_is_heard_after_what_took_no_notice_of_it_or_must_not(capsys: pytest.CaptureFixture[str]) -> None:
    reached: list[str] = []
    for do in (swallows, frees, waits):
        with pytest.raises(KeyboardInterrupt):
            do(reached)
    with heard(), uninterrupted():
        reached.append("without any")
    told = ["after it was swallowed", "after an object was freed", "while it waits", "without any"]
    assert reached == told
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
