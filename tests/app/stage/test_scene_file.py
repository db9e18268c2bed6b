"""Scenes as files: what is shipped, and what a broken one is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.inside.insights import INSIGHTS
from app.play.layout import AREAS
from app.stage.scene import RACE_PANELS, RUN_PANELS, Point, in_turn, point_at, shares
from app.stage.scene_file import read_scene, read_tour, shipped_tour
from engine import Engine, InvalidInput, load_workload
from engine.compare import parse_lane

SCENE = """title = "Mine"
caption = "One. Two."
question = "Why?"
answer = "Because."
workload = "burst"
lanes = ["continuous:4"]
panels = ["timeline"]

[[points]]
on = "timeline"
step = 3
words = "Look."

[[points]]
on = "timeline"
at = 1.0
words = "The end."
"""
RACE = SCENE.replace('"continuous:4"', '"static:4", "continuous:4"').replace('["timeline"]', '["slots"]')
RACE = RACE.replace("step = 3", "at = 0.5").replace('on = "timeline"', 'on = "lane 2"')


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_tour_walks_the_course_and_every_scene_can_be_copied_as_a_command() -> None:
    scenes = read_tour()
    assert len(scenes) == 26
    assert [scene.file.name[:2] for scene in scenes] == [f"{i:02}" for i in range(1, 27)]
    for scene in scenes:
        assert scene.caption.count(". ") + 1 <= 3, f"{scene.file.name}: two sentences, or three short ones"
        assert scene.question.endswith("?")
        assert scene.command.startswith("batchscope compare --workload ")
        assert ",".join(scene.lanes) in scene.command


@pytest.mark.parametrize(("name", "sees"), [("preemption", "preempted"), ("prefix-hit", "reused")])
def test_what_is_shown_by_itself_happens_before_it_is_spoken_of(name: str, sees: str) -> None:
    scene = read_scene(shipped_tour() / "shown" / f"{name}.toml")
    workload, lane = load_workload(scene.workload), parse_lane(scene.lanes[0])
    workload = replace(workload, arrivals=workload.arrivals[: scene.count])
    assert scene.kv_tokens is not None
    with Engine(lane.spec, lane.config, threads=1) as engine:
        bytes_ = scene.kv_tokens * engine.card.kv_token_bytes
        engine.begin(replace(lane.config, kv_memory=bytes_))
        steps = engine.run(workload).result().steps
    seen = [place for place, step in enumerate(steps) if getattr(step, sees).any()]
    spoken = [point.step for point in scene.points if point.step is not None]
    assert seen
    assert all(any(place <= step for place in seen) for step in spoken[1:])


def test_panels_have_the_windows_names() -> None:
    names = {insight.name for insight in INSIGHTS} | {name for name in AREAS if name != "setup"} | {"live", "streams"}
    assert set(RUN_PANELS) == names
    assert set(RACE_PANELS) - {"slots"} < {insight.name for insight in INSIGHTS}


def test_a_folder_is_a_tour_in_the_order_of_names_and_a_workload_may_lie_beside_its_scene(tmp_path: Path) -> None:
    written(tmp_path, "Tell me a story.\n", "mine.txt")
    written(tmp_path, RACE.replace('"burst"', '"mine.txt"'), "2.toml")
    written(tmp_path, SCENE, "1.toml")
    first, second = read_tour(tmp_path)
    assert not first.races
    assert second.races
    assert second.workload == str(tmp_path / "mine.txt")
    assert read_tour(tmp_path / "1.toml") == (first,)
    assert second.places == ("lane 1", "lane 2", "lane 1 figures", "lane 2 figures", "lanes", "curves", "table")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (SCENE.replace('title = "Mine"', "titel = 'Mine'"), 1, "unknown key 'titel'"),
        (SCENE.replace('answer = "Because."\n', ""), 1, "has no answer"),
        (SCENE.replace('"burst"', '"bust"'), 5, "no such workload; use one of burst"),
        (SCENE.replace("continuous:4", "continuos:4"), 6, "no such mode; use one of"),
        (SCENE.replace('panels = ["timeline"]', 'panels = ["timelines"]'), 7, "must be one of streams, timeline"),
        (SCENE.replace("step = 3", "step = -3"), 11, "points[0].step=-3"),
        (SCENE.replace("at = 1.0", "at = 1.5"), 16, "must be a share of the run, from 0 to 1"),
        (SCENE.replace("at = 1.0", "when = 1.0"), 16, "unknown key 'when'"),
        (SCENE.replace('at = 1.0\nwords = "The end."', "at = 1.0"), 14, "points[1]: has no words"),
        (SCENE.replace("step = 3", "step = 3\nat = 0.1"), 11, "give one of the two"),
        (SCENE.replace('on = "timeline"\nat', 'on = "kv_map"\nat'), 15, "must be one of timeline"),
        (RACE.replace('"lane 2"\nat = 1.0', '"table"\nstep = 3'), 16, "give at, a share of the race"),
        (RACE.replace("The end.", "{3.steps}"), 17, "there is no lane 3"),
        (RACE.replace("The end.", "{2.stepz}"), 17, "no such figure; use one of weights"),
        (RACE.replace("lane 2", "lane 3", 1), 10, "must be one of lane 1, lane 2"),
        (SCENE.replace("answer = ", "answer = = "), 4, "not TOML"),
    ],
)
def test_a_broken_scene_names_file_line_and_remedy(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidInput) as told:
        read_scene(path)
    assert str(told.value).startswith(str(path))
    assert f"line {line}" in str(told.value)
    assert words in str(told.value)


def test_a_tour_that_is_not_there_says_what_would_be_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"scenes are \*\.toml files"):
        read_tour(tmp_path)
    with pytest.raises(InvalidInput, match="check the path"):
        read_tour(tmp_path / "none.toml")


def test_points_are_due_at_shares_of_the_run_or_at_the_end_of_steps_and_never_before_the_one_ahead() -> None:
    points = [Point("x", "", step=1), Point("x", "", at=0.25), Point("x", "", at=0.75), Point("x", "", step=99)]
    due = shares(points, [11.0, 12.0, 13.0, 14.0], 10.0)
    assert due == [0.5, 0.5, 0.75, 1.0]
    assert [point_at(due, share) for share in (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)] == [-1, -1, 1, 1, 2, 3]
    assert shares(points[1:3], [], 0.0) == [0.25, 0.75], "before there is a step"


def test_a_point_of_a_lanes_step_is_lit_at_that_step_even_before_one_named_ahead_of_it() -> None:
    steps = (True, True, False)  # two lanes' steps, then what is said of both
    assert in_turn([0.3, 0.5, 0.3], steps) == pytest.approx([0.3, 0.5, 0.55])
    assert in_turn([0.3, 0.31, 0.3], steps) == pytest.approx([0.3, 0.35, 0.40]), "each is in the light for a while"
    slow = in_turn([0.7, 0.2, 0.7], steps)  # the first lane was slowed
    assert slow == pytest.approx([0.7, 0.2, 0.75])
    assert [point_at(slow, share) for share in (0.1, 0.2, 0.7, 0.75, 1.0)] == [-1, 1, 0, 2, 2]
    assert in_turn([0.5, 0.2, 1.0], 3 * (False,)) == pytest.approx([0.5, 0.55, 1.0]), "shares keep their turns"
    assert in_turn([0.96, 1.0, 1.0], steps) == pytest.approx([0.90, 0.95, 1.0]), "at the end too"
