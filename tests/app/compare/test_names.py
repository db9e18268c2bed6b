"""Lanes' names where there is little room. No window."""

import pytest

from app.compare.lane_names import fitting, short_names
from engine.compare import lane_names, parse_lane


@pytest.mark.parametrize(
    ("lanes", "short"),
    [
        (
            ("continuous", "chunked", "continuous:tp=2", "continuous:pp=2"),
            ("continuous", "chunked", "continuous · tp 2", "continuous · pp 2"),
        ),
        (("static:8", "continuous:prefix", "continuous"), ("static", "continuous + prefix", "continuous")),
        (("static:8", "static:16"), ("static · 8", "static · 16")),
        (("continuous", "continuous", "static:8"), ("continuous (1)", "continuous (2)", "static")),
        (("continuous:name=a · b", "continuous:name=a · c"), ("a · b", "a · c")),
    ],
)
def test_what_tells_lanes_apart_stays(lanes: tuple[str, ...], short: tuple[str, ...]) -> None:
    assert short_names(lane_names([parse_lane(lane) for lane in lanes])) == short


def test_the_mode_gives_way_before_what_tells_it_apart() -> None:
    name = "continuous · tp 2"
    assert fitting(name, lambda words: len(words) <= len(name)) == name
    assert fitting(name, lambda words: len(words) <= 12) == "cont… · tp 2"
    assert fitting(name, lambda words: len(words) <= 5) == "tp 2"
    assert fitting("static", lambda words: len(words) <= 4) == "sta…"
