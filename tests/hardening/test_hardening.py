"""A hundred broken inputs of each kind, some kills and a short soak; `make harden` has thousands, others with each
seed."""

from pathlib import Path
from random import Random

import pytest

from tests.hardening.found import Found
from tests.hardening.harden import SHARES, harden
from tests.hardening.kills import kill
from tests.hardening.mutators import broken_text
from tests.hardening.requests import ask
from tests.hardening.soak import soak
from tests.hardening.targets import TARGETS

pytestmark = pytest.mark.slow

COUNTS = {"runs": 60, "workloads": 100, "models": 60, "loads": 8, "views": 4, "races": 60, "bodies": 80}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", TARGETS)
def test_whatever_a_file_holds_it_is_read_or_refused_in_words(kind: str, tmp_path: Path) -> None:
    TARGETS[kind].make(tmp_path)
    found = harden(kind, COUNTS[kind], 0, tmp_path, slack=6.0)
    assert found.defects == []
    assert found.counts.total() == COUNTS[kind]
    assert min(found.counts["taken"], found.counts["refused"]) > 0.05 * COUNTS[kind], "both must be tried"


@pytest.mark.timeout(240)
def test_killed_at_any_moment_an_engine_ends_with_words_and_a_recording_opens_again(tmp_path: Path) -> None:
    found = kill(4, 0, tmp_path)
    assert found.defects == []
    assert found.counts == {"ended": 3, "opened": 1}


@pytest.mark.timeout(240)
def test_after_hundreds_of_turns_an_engine_has_kept_its_blocks_and_left_nothing() -> None:
    found = soak(150, 0)
    assert found.defects == []
    assert found.counts == {"kept": 150}


@pytest.mark.timeout(240)
def test_after_hundreds_of_clients_that_went_away_a_server_has_nothing_left() -> None:
    found = ask(60, 0)
    assert found.defects == []
    assert found.counts.total() == 60
    assert found.counts["taken"] > 6


def test_what_is_no_answer_is_counted_as_a_defect() -> None:
    found = Found()
    for outcome in ("taken", "refused", "traceback", "hang"):
        found.add("runs", 7, outcome, "words")
    assert found.defects == ["runs 7: traceback: words", "runs 7: hang: words"]


def test_the_long_run_tries_every_kind() -> None:
    assert set(SHARES) == {*TARGETS, "kills", "replicas", "soak", "requests"}


def test_what_is_broken_can_be_broken_again() -> None:
    deep = "[" * 100_000  # what comes of breaking a text may be nothing, and never an error
    assert {broken_text(deep, Random(seed)) for seed in range(20)} != {deep.encode()}
