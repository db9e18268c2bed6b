"""The records of what requests hear of their prompts: packed, and refused where they cannot be."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.config.specs import EngineConfig
from engine.trace import Log, PromptScored, Submitted
from engine.trace.records import decode, encode
from engine.trace.records.check import RecordCheck
from tests.engine.trace.hand_made import header, submitted

IDS, FLOATS = np.array([4, 5, 6, 7], np.int32), np.array([-0.5, -1.0, -2.0, -3.0], np.float32)
TOLD = PromptScored(0.2, 0, IDS[:3], FLOATS[:2], 2, IDS, FLOATS, "a fox", np.array([1, 1, 5], np.int32))


def checked(told: PromptScored) -> None:
    check = RecordCheck()
    for record in (header(EngineConfig()), submitted(0.1, 0, 3), told):
        check(record)


def test_what_was_told_of_a_prompt_can_be() -> None:
    checked(TOLD)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"request": 1}, "was not submitted"),
        ({"logprob": FLOATS[:3]}, "a prompt's tokens"),
        ({"token": IDS[:2]}, "a prompt's tokens"),
        ({"text_end": IDS[:2]}, "a prompt's tokens"),
        ({"alternatives": 1}, "alternatives"),
        ({"alternatives": -2}, "alternatives"),
        ({"alt_logprob": FLOATS[:3]}, "alternatives"),
        ({"logprob": np.array([np.nan, 0.0])}, r"PromptScored.logprob"),
        ({"text_end": np.array([1, 0, 5])}, "text_end out of order"),
        ({"text_end": np.array([1, 1, 6])}, "text_end outside"),
    ],
)
def test_what_cannot_have_been_told_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked(replace(TOLD, **change))


def test_it_is_the_same_after_it_was_packed() -> None:
    log = Log([TOLD] * 600, kept=0)
    for each in (log[0], decode(*encode(TOLD))):
        assert isinstance(each, PromptScored)
        assert each.text == TOLD.text
        for name in ("token", "logprob", "alt_token", "alt_logprob", "text_end"):
            np.testing.assert_array_equal(getattr(each, name), getattr(TOLD, name))


def test_an_older_request_asked_for_nothing() -> None:
    kind, data = encode(submitted(0.1, 0, 3))
    old = decode(kind, data.replace(b',"prompt_logprobs":null', b""))
    assert isinstance(old, Submitted)
    assert old.params.prompt_logprobs is None
