"""The log keeps its newest lines, in a file where one is wanted; a report says what ended a process, not whose."""

import getpass
import logging
from pathlib import Path

import pytest

from app.reports.crash import KEPT, NO_TRACE, left_behind, watched, why_of, write_report
from app.reports.facts import facts_text
from app.reports.log import Log, kept_log, last_lines
from app.reports.private import without_names


def test_the_log_keeps_its_newest_lines_and_their_details() -> None:
    log = Log(most=3)
    logger = logging.getLogger("a test")
    logger.propagate = False
    logger.addHandler(log)
    for number in range(5):
        logger.warning("line %d", number)
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("told")
    logger.warning("%d and %d", 1)  # arguments that do not fit are no harm
    lines = log.since(0)
    assert [line.number for line in lines] == [4, 5, 6]
    assert [line.text for line in lines] == ["line 4", "told", "%d and %d"]
    assert lines[1].details.endswith("ValueError: broken")
    assert "ValueError: broken" in str(lines[1])
    assert [line.text for line in log.since(6)] == ["%d and %d"]
    assert log.since(7) == []
    logger.removeHandler(log)


def test_the_file_is_written_while_it_is_wanted_and_its_folder_may_be_lost(tmp_path: Path) -> None:
    logger = logging.getLogger("another test")
    with kept_log(tmp_path / "logs") as log:
        logger.info("the first")
        log.keep_file(None)
        logger.info("the second")
        log.keep_file(tmp_path / "logs")
        logger.info("the third")
        (tmp_path / "a file").touch()
        log.keep_file(tmp_path / "a file")
        assert "no log file is kept" in log.since(0)[-1].text
    said = [line.rpartition(": ")[2] for line in last_lines(tmp_path / "logs", 10)]
    assert said == ["the first", "the third"]
    assert last_lines(tmp_path / "nowhere", 10) == []
    assert log not in logging.getLogger().handlers


def test_an_error_that_ends_the_process_is_in_its_report_and_told_once(tmp_path: Path) -> None:
    def break_down() -> None:
        with watched(tmp_path, lambda: "version 1", lambda: ["a last line"]):
            assert not left_behind(tmp_path, []), "it lives"
            raise ValueError(f"broken in {Path.home()}/my thesis")

    with pytest.raises(ValueError, match="broken"):
        break_down()
    (report,) = left_behind(tmp_path, ["not needed"])
    assert report.why == "ValueError: broken in ~/my thesis"
    assert report.text.startswith("version 1\n")
    assert report.text.endswith("a last line\n")
    assert "not needed" not in report.text
    assert left_behind(tmp_path, []) == []
    with watched(tmp_path, lambda: "", list):
        pass
    with pytest.raises(KeyboardInterrupt), watched(tmp_path, lambda: "", list):
        raise KeyboardInterrupt
    assert left_behind(tmp_path, []) == []


def test_a_folder_that_cannot_be_written_to_costs_the_report_alone(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with watched(tmp_path / "a file", lambda: "", list) as write_facts:
        write_facts()
    assert left_behind(tmp_path / "a file", []) == []


def test_the_oldest_reports_go(tmp_path: Path) -> None:
    for second in range(KEPT + 3):
        write_report(tmp_path / "crashes", f"report {second}", 1e9 + second)
    kept = sorted((tmp_path / "crashes").iterdir())
    assert len(kept) == KEPT
    assert kept[0].read_text() == "report 3\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x\nFatal Python error: Segmentation fault\n\nStack", "Segmentation fault"),
        (
            "Traceback (most recent call last):\n  File\n    code\nOSError: [Errno 28] full\n",
            "OSError: [Errno 28] full",
        ),
        ("version 1", NO_TRACE),
    ],
)
def test_a_report_says_what_happened(text: str, why: str) -> None:
    assert why_of(text) == why


def test_whose_machine_it_was_is_not_in_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "johanna")
    monkeypatch.setattr("socket.gethostname", lambda: "turing")
    text = 'File "/home/johanna/x.py" on turing, /Users/karl/y, johanna; /srv/johannasson/turingtest'
    assert without_names(text) == 'File "~/x.py" on this-machine, ~/y, someone; /srv/johannasson/turingtest'
    said = facts_text([("window/theme", "dark")])
    assert "setting window/theme" in said
    assert "PySide6-Essentials" in said
