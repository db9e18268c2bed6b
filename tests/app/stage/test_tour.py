"""The shipped tour, played from its first scene to its last in the real window: each shows what its caption names."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from app.inside.attention.panel import AttentionPanel
from app.inside.beams.panel import BeamsPanel
from app.inside.experts.panel import ExpertsPanel
from app.inside.kv_map.panel import KvMap
from app.inside.memory.panel import MemoryBill
from app.inside.panel import InsightPanel
from app.inside.roofline.panel import Roofline
from app.inside.step.panel import StepInspector
from app.inside.timeline.panel import TimelinePanel
from app.session.session import SessionState
from app.stage.scene import Point
from app.stage.spotlight import in_sight
from app.stage.tour import Tour
from app.ui.look import theme
from app.window.main_window import COMPARE, PLAY, MainWindow
from engine import EngineConfig, Trace
from engine.trace import Kind, Step, Submitted, bytes_text
from tests.app.conftest import wait_until
from tests.app.painted_words import unread_from_afar

WAIT = 60_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def steps(trace: Trace) -> list[Step]:
    return [record for record in trace.records if isinstance(record, Step)]


def prompts(trace: Trace) -> list[int]:
    """Tokens of each prompt."""
    return [len(record.token_ids) for record in trace.records if isinstance(record, Submitted)]


def kinds(step: Step) -> list[Kind]:
    return [Kind(kind) for kind in step.kind]


def first_word(trace: Trace, request: int = 0) -> float:
    """Seconds from the submission of a request to its first token."""
    view = trace.requests[request]
    return float(view.samples[0].token_times[0]) - view.submitted


class Stage:
    """What a scene shows, as a test asks for it."""

    def __init__(self, window: MainWindow, tour: Tour) -> None:
        self.window, self.tour = window, tour
        assert window.compare is not None
        self.compare = window.compare

    @property
    def trace(self) -> Trace:
        return self.window.bridge.trace

    @property
    def lanes(self) -> list[Trace]:
        return [lane.playback.trace for lane in self.compare.race.lanes]

    def panel(self, name: str) -> InsightPanel:
        """Brought up to date, in sight."""
        place = self.window.page.places[name]
        assert place.isVisible(), name
        panel = place.build()
        panel.catch_up()
        return panel

    def lane_panel(self, lane: int) -> InsightPanel:
        panel = self.compare.views[lane].body.currentWidget().findChild(InsightPanel)
        assert panel is not None
        panel.catch_up()
        return panel

    def at(self, place: int) -> Point:
        """Goes to a point of the scene, and sees that it is lit."""
        tour = self.tour
        assert tour.show is not None
        tour.show.go(tour.due[place])
        tour.tick()
        QApplication.processEvents()  # what is pointed at has another size while presenting
        tour.tick()
        point = tour.scene.points[place]
        assert self.window.touring.bar.pointed.text() == tour.told[place]
        assert "{" not in tour.told[place]
        shown = tour.show.place(point.on)
        assert shown is not None
        assert shown.isVisible()
        assert tour.spotlight.target == in_sight(shown, self.window.pages)
        return point


def cache(stage: Stage) -> None:
    without, kept = stage.lanes
    computed = [sum(int(step.count.sum()) for step in steps(trace)) for trace in (without, kept)]
    assert computed[0] > 10 * computed[1]
    assert computed[1] == sum(prompts(kept)) + 2 * 63, "every token once"
    assert [view.samples[0].text for view in without.requests.values()] == [
        view.samples[0].text for view in kept.requests.values()
    ]


def prefill_decode(stage: Stage) -> None:
    first, later = steps(stage.trace)[0], steps(stage.trace)[8]
    assert kinds(first) == 3 * [Kind.PREFILL]
    assert int(first.count.sum()) == sum(prompts(stage.trace)) > 400
    assert kinds(later) == 3 * [Kind.DECODE]
    stage.at(0)
    panel = stage.panel("step")
    assert isinstance(panel, StepInspector)
    wait_until(lambda: f"{int(first.count.sum())} tokens in" in panel.summary.accessibleName())


def memory_bound(stage: Stage) -> None:
    stage.at(1)
    panel = stage.panel("roofline")
    assert isinstance(panel, Roofline)
    prefill, decode = panel.points.point(0), panel.points.point(12)
    assert prefill.intensity > 20 * decode.intensity, "at the right, and at the left"
    assert decode.tokens == 1, "with more, fast memory and one slow processor can stand right of the ridge"
    assert decode.intensity < 1, "left of the ridge of whatever computes faster than it reads"


def static(stage: Stage) -> None:
    stage.at(1)
    assert kinds(steps(stage.trace)[90]).count(Kind.HELD) == 3
    assert len({int(step.request[0]) for step in steps(stage.trace) if Kind.PREFILL in kinds(step)}) == 2, "two batches"
    panel = stage.panel("timeline")
    assert isinstance(panel, TimelinePanel)
    begin, end = panel.view.moments()
    assert begin <= 0.0
    assert end >= 0.99 * (steps(stage.trace)[-1].ended - (stage.trace.origin or 0.0)), "all of the run is in sight"


def dynamic(stage: Stage) -> None:
    static_lane, dynamic_lane = stage.lanes
    assert first_word(static_lane) > 0.37, "until the fourth was there"
    assert first_word(dynamic_lane) < first_word(static_lane)
    assert len(steps(dynamic_lane)) > len(steps(static_lane)) == 2 * 24


def padded(stage: Stage) -> None:
    stage.at(1)
    step = steps(stage.trace)[10]
    assert sorted(step.request.tolist()) == [0, 1, 2, 4], "the fourth has left, the fifth has joined"
    written = [len(view.samples[0].token_times) for view in stage.trace.requests.values()]
    assert len(steps(stage.trace)) < max(written[:4]) + max(written[4:]), "fewer than in two batches"
    stage.at(2)
    panel = stage.panel("kv_map")
    assert isinstance(panel, KvMap)
    state = panel.state()
    assert state is not None
    assert state.kinds().internal > 0, "padding"


def continuous(stage: Stage) -> None:
    step = steps(stage.trace)[10]
    assert sorted(step.request.tolist()) == [0, 1, 2, 4]
    stage.at(1)
    panel = stage.panel("kv_map")
    assert isinstance(panel, KvMap)
    state = panel.state()
    assert state is not None
    assert state.kinds().internal < state.kinds().used / 4
    assert int((state.owner >= 0).sum()) > 0.4 * state.blocks, "the pool is small enough to fill the map"


def fragmentation(stage: Stage) -> None:
    stage.at(0)
    strips = stage.lane_panel(0)
    stage.at(1)
    assert steps(stage.lanes[0])[2].rows == 3, "all of them live"
    blocks = stage.lane_panel(1)
    assert isinstance(strips, KvMap)
    assert isinstance(blocks, KvMap)
    paged = blocks.state()
    assert paged is not None
    assert paged.blocks == 16
    waste = [sum(step.kv_internal + step.kv_reserved for step in steps(trace)) for trace in stage.lanes]
    held = [sum(step.kv_used for step in steps(trace)) + w for trace, w in zip(stage.lanes, waste, strict=True)]
    assert waste[0] / held[0] > 2 * waste[1] / held[1]


def paging(stage: Stage) -> None:
    assert prompts(stage.trace)[0] == 7
    for place, filled in ((0, [4, 3]), (1, [4, 4, 1])):
        stage.at(place)
        panel = stage.panel("kv_map")
        assert isinstance(panel, KvMap)
        state = panel.state()
        assert state is not None
        table = state.samples(0)[0]
        assert state.filled[table].tolist() == filled
        assert stage.window.bridge.scope.request == 0


def selective(stage: Stage) -> None:
    stage.at(0)
    step = steps(stage.trace)[1]
    assert kinds(step) == [*3 * [Kind.DECODE], Kind.PREFILL]
    assert int(step.count.sum()) == 64, "the budget"
    assert kinds(steps(stage.trace)[12]) == 4 * [Kind.DECODE]


def chunked(stage: Stage) -> None:
    whole, chunks = (max(int(step.count.sum()) for step in steps(trace)) for trace in stage.lanes)
    assert whole > 900
    assert chunks == 64
    mixed = [step for step in steps(stage.lanes[1]) if set(kinds(step)) == {Kind.PREFILL, Kind.DECODE}]
    assert len(mixed) > 10, "the prompt shares its steps"
    assert not [step for step in steps(stage.lanes[0]) if len(set(kinds(step))) > 1]


def disaggregated(stage: Stage) -> None:
    meanwhile = [step for step in steps(stage.lanes[1]) if step.beside and len(step.token)]
    assert len(meanwhile) > 10, "the three write on while the prompt is read"
    chunked, apart = (max(step.ended - step.started for step in steps(trace)) for trace in stage.lanes)
    assert max(int(step.count.sum()) for step in steps(stage.lanes[1])) > 900
    assert max(int(step.own.count.sum()) for step in steps(stage.lanes[1])) <= 4
    assert chunked > 0 < apart


def prefixes(stage: Stage) -> None:
    most = []
    for lane, place in ((1, 0), (0, 1)):
        stage.at(place)
        panel = stage.lane_panel(lane)
        assert isinstance(panel, KvMap)
        state = panel.state()
        assert state is not None
        most.append(int((state.owner >= 0).sum()))
        assert bool((state.references > 1).any()) is (lane == 1)
        assert len({int(owner) for owner in state.owner if owner >= 0}) == 5, "all of them live"
    assert most[0] < most[1] / 2
    assert f"{sum(int(step.count.sum()) for step in steps(stage.lanes[0])):,} tokens" in stage.tour.told[1]


def grouped(stage: Stage) -> None:
    shared, own = stage.lanes
    assert own.header.model.kv_heads == own.header.model.heads == 2 * shared.header.model.kv_heads
    assert own.header.kv_token_bytes == 2 * shared.header.kv_token_bytes
    few, most = taken(stage)
    assert few < 0.7
    assert most > 0.8
    assert steps(own)[28].rows < steps(shared)[28].rows == 8, "some were put back"
    assert [v.samples[0].text for v in shared.requests.values()] == [v.samples[0].text for v in own.requests.values()]
    assert (
        f"{len(steps(shared)):,} steps where heads share; {len(steps(own)):,} where they do not" in stage.tour.told[2]
    )


def taken(stage: Stage) -> list[float]:
    """The share of each lane's blocks that somebody owns, at the point that tells of it."""
    shares = []
    for place in (0, 1):
        stage.at(place)
        panel = stage.lane_panel(place)
        assert isinstance(panel, KvMap)
        state = panel.state()
        assert state is not None
        shares.append(int((state.owner >= 0).sum()) / state.blocks)
    return shares


def latent(stage: Stage) -> None:
    latents, own = stage.lanes
    assert (latents.header.model.latent, own.header.model.latent) == (True, False)
    assert own.header.kv_token_bytes == 6.4 * latents.header.kv_token_bytes
    few, most = taken(stage)
    assert few < 0.5
    assert most > 0.8
    assert steps(own)[28].rows < steps(latents)[28].rows == 8, "the others wait"
    said, same = ([v.samples[0].text for v in lane.requests.values()] for lane in (latents, own))
    assert said == same
    assert f"{len(steps(latents)):,} steps with latents; {len(steps(own)):,} without" in stage.tour.told[2]


def states(stage: Stage) -> None:
    hybrid, dense = stage.lanes
    assert hybrid.header.kv_memory >= dense.header.kv_memory > 0.99 * hybrid.header.kv_memory
    assert dense.header.kv_token_bytes == 3 * hybrid.header.kv_token_bytes
    assert (steps(hybrid)[40].rows, steps(dense)[40].rows) == (6, 2), "the others wait"
    stage.at(0)
    panel = stage.lane_panel(0)
    assert isinstance(panel, KvMap)
    assert panel.view.states.isVisible()
    assert panel.view.states.words() == "States of 6 of 6 requests that may run, 160 KB each"
    assert f"{len(steps(hybrid)):,} steps with states, {len(steps(dense)):,} without" in stage.tour.told[2]


def attention(stage: Stage) -> None:
    said = ("alone", "kite", "as", "brave")
    copying = ((3, 1), (3, 2), (4, 3), (4, 4))  # counted from 0
    for place, token in enumerate(said):
        stage.at(place)
        panel = stage.panel("attention")
        assert isinstance(panel, AttentionPanel)
        focus = panel.picture.focus
        assert focus is not None
        assert focus.sample.texts[focus.token].strip() == token
        if place in (1, 2):
            context = focus.sample.context(focus.token)
            looked = {context[focus.weights[layer, head].argmax()] for layer, head in copying}
            assert looked == ({" kite"} if place == 1 else {"<s>"})
            assert min(focus.weights[layer, head].max() for layer, head in copying) > 0.9
    assert panel.picture.lines is not None
    assert panel.picture.heads is not None
    shown = panel.picture.lines.weights
    nearest = [line[: len(focus.sample.prompt) + at][-8:].sum() for at, line in zip(panel.picture.lines.tokens, shown)]
    assert np.median(nearest) > 0.4, "most look at what is nearest"


def experts(stage: Stage) -> None:
    panel = stage.panel("experts")
    assert isinstance(panel, ExpertsPanel)
    shares = []
    for place, tokens in ((0, None), (1, 8), (2, 1)):
        point = stage.at(place)
        panel = stage.panel("experts")
        step = steps(stage.trace)[point.step or 0]
        assert tokens is None or step.count.sum() == tokens
        shares.append(np.count_nonzero(step.expert) / len(step.expert))
    assert shares[0] > 0.95, "every one"
    assert 0.4 < shares[1] < 0.95
    assert shares[2] == 0.25
    assert panel.summary.accessibleName().startswith("12 of 48 experts")


def quantized(stage: Stage) -> None:
    whole, small = (trace.header.model for trace in stage.lanes)
    assert small.quantization == "awq"
    assert whole.dtype == small.dtype, "one change at a time"
    assert small.weight_bytes < whole.weight_bytes / 2
    assert bytes_text(whole.weight_bytes) in stage.tour.told[2]
    spans = []
    for lane in (0, 1):
        panel = stage.lane_panel(lane)
        assert isinstance(panel, MemoryBill)
        spans.append(panel.span())
    assert spans[0] == spans[1], "on one clock"


def beams(stage: Stage) -> None:
    stage.at(0)
    panel = stage.panel("beams")
    assert isinstance(panel, BeamsPanel)
    search = panel.history.shown(-1, stage.window.bridge.scope.moment)
    assert search is not None
    assert len(search.columns[6].live) == 4
    stage.at(1)
    pool = stage.panel("kv_map")
    assert isinstance(pool, KvMap)
    state = pool.state()
    assert state is not None
    assert int((state.references > 1).sum()) > 0, "shared by beams"


def speculation(stage: Stage) -> None:
    alone, drafts = stage.lanes
    assert len(steps(drafts)) < 0.5 * len(steps(alone))
    stage.at(2)
    told = stage.tour.told[2]
    assert f"{len(steps(alone))} steps of the large model without drafts, {len(steps(drafts))} with them" in told
    assert [v.samples[0].text for v in alone.requests.values()] == [v.samples[0].text for v in drafts.requests.values()]


def admission(stage: Stage) -> None:
    came, shortest = stage.lanes

    def done(trace: Trace) -> int:
        """Requests that were over after the step that is pointed at."""
        moment = steps(trace)[80].ended
        return sum(view.ended is not None and view.ended <= moment for view in trace.requests.values())

    assert (done(came), done(shortest)) == (6, 12), "as the scene says"
    jobs = {view.request: len(view.prompt_ids) + view.params.max_tokens for view in shortest.requests.values()}
    joined = dict.fromkeys(int(request) for step in steps(shortest) for request in step.request)
    assert [jobs[request] for request in joined] == sorted(jobs.values())
    assert abs(len(steps(came)) - len(steps(shortest))) < 0.1 * len(steps(came))
    assert [v.samples[0].text for v in came.requests.values()] == [
        v.samples[0].text for v in shortest.requests.values()
    ]


def adapters(stage: Stage) -> None:
    apart, together = stage.lanes
    assert apart.header.model.adapters == ("pirate", "german", "verse")
    through = {view.request: view.params.adapter for view in apart.requests.values()}
    voices = [[len({through[int(r)] for r in step.request}) for step in steps(lane)] for lane in stage.lanes]
    assert set(voices[0]) == {1}
    assert max(voices[1]) == 4
    assert len(steps(apart)[60].request) == 3, "as the scene says, five of eight slots are empty"
    assert len(steps(together)[20].request) == 8
    assert len(steps(together)) < 0.6 * len(steps(apart))
    assert [v.samples[0].text for v in apart.requests.values()] == [
        v.samples[0].text for v in together.requests.values()
    ]


def offloading(stage: Stage) -> None:
    forgets, keeps = stage.lanes
    assert [v.samples[0].text for v in forgets.requests.values()] == [
        v.samples[0].text for v in keeps.requests.values()
    ]
    assert not any(len(step.swap_event) for step in steps(forgets))
    back = sum(len(step.found_below) for step in steps(keeps)) * 16
    computed = [sum(int(step.count.sum()) for step in steps(lane)) for lane in stage.lanes]
    assert computed[0] - computed[1] == back > 0.5 * computed[0]
    stage.at(1)
    panel = stage.lane_panel(1)
    assert isinstance(panel, KvMap)
    state = panel.state()
    assert state is not None
    assert {0, 1, 2, 3} <= set(state.kept.tolist()), "as the scene says, of each application"
    stage.at(2)
    assert f"{computed[0]:,} tokens computed. Kept: {computed[1]:,}, and {back:,} copied back" in stage.tour.told[2]


def forgetting(stage: Stage) -> None:
    newest, first = stage.lanes
    texts = [[v.samples[0].text for v in lane.requests.values()] for lane in stage.lanes]
    assert not any(len(step.preempted) for lane in stage.lanes for step in steps(lane))
    assert [20 - min(step.free_blocks for step in steps(lane)) for lane in stage.lanes] == [3 * 5, 3 * 6]
    for a, b in zip(*texts):
        assert a != b
        assert a[:150] == b[:150], "before anything is forgotten"
    repeated, told = (sum(len(set(pairwise(text.split()[60:]))) for text in said) for said in texts)
    assert repeated < 0.75 * told, "as the scene says, it comes back to the same words"
    stage.at(0)
    assert stage.compare.views[0].strip.isVisible(), "their last words"


def latency(stage: Stage) -> None:
    counts = [len(steps(trace)) for trace in stage.lanes]
    assert counts[0] > 1.8 * counts[1] > 5 * counts[2]
    assert [max(len(step.request) for step in steps(trace)) for trace in stage.lanes] == [1, 2, 8]


CHECKS: dict[str, Callable[[Stage], None]] = {
    "01-cache": cache,
    "02-attention": attention,
    "03-prefill-decode": prefill_decode,
    "04-memory-bound": memory_bound,
    "05-static": static,
    "06-dynamic": dynamic,
    "07-continuous-padded": padded,
    "08-continuous": continuous,
    "09-fragmentation": fragmentation,
    "10-paging": paging,
    "11-selective-batching": selective,
    "12-chunked": chunked,
    "13-disaggregated": disaggregated,
    "14-prefix-caching": prefixes,
    "15-offloading": offloading,
    "16-forgetting": forgetting,
    "17-grouped-query": grouped,
    "18-latent": latent,
    "19-states": states,
    "20-experts": experts,
    "21-quantization": quantized,
    "22-beams": beams,
    "23-speculation": speculation,
    "24-admission": admission,
    "25-adapters": adapters,
    "26-latency-throughput": latency,
}


def test_the_whole_tour_is_played_and_the_person_has_back_what_was_there(qtbot: QtBot, ready: MainWindow) -> None:
    window, touring, session = ready, ready.touring, ready.session
    assert touring.card.button.isVisible()
    choice = EngineConfig(max_running=16)
    shown = {name for name, dock in window.page.docks.items() if dock.isVisible()}
    qtbot.mouseClick(touring.card.button, Qt.MouseButton.LeftButton)
    tour, bar = touring.tour, touring.bar
    assert tour is not None
    tour.replays = False
    present(qtbot, window)
    assert [scene.file.stem for scene in tour.scenes] == list(CHECKS)
    for number, scene in enumerate(tour.scenes):
        if number:
            qtbot.keyClick(bar, Qt.Key.Key_Right)
        qtbot.waitUntil(lambda number=number: tour.number == number and tour.over, timeout=WAIT)  # type: ignore[misc]
        assert window.pages.currentIndex() == (COMPARE if scene.races else PLAY)
        assert bar.title.text() == scene.title
        assert bar.number.text() == f"{number + 1} of {len(CHECKS)}"
        stage = Stage(window, tour)
        CHECKS[scene.file.stem](stage)
        check_from_afar(qtbot, stage)
        if scene.file.stem == "05-static":
            qtbot.keyClick(window, Qt.Key.Key_F5)
            check_try_it(qtbot, window, tour)
            present(qtbot, window)
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert touring.on, "the first one ends presenting"
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: touring.tour is None, timeout=WAIT)
    assert session.state is SessionState.READY
    assert session.config == choice
    assert window.pages.currentIndex() == PLAY
    assert not bar.isVisible()
    assert window.page.composer.isVisible()
    assert {name for name, dock in window.page.docks.items() if dock.isVisible()} == shown
    assert window.compare is not None
    assert window.compare.setup.isVisibleTo(window.compare)


def present(qtbot: QtBot, window: MainWindow) -> None:
    qtbot.keyClick(window, Qt.Key.Key_F5)
    window.showNormal()  # the offscreen screen is smaller
    window.resize(*theme.STAGE)


def check_from_afar(qtbot: QtBot, stage: Stage) -> None:
    """Whatever a point is on, and what is said of it, can be read from the back row: two scenes in the light theme, the
    next two in the dark one."""
    window, tour, bar = stage.window, stage.tour, stage.window.touring.bar
    assert tour.show is not None
    theme.set_theme("light" if tour.number // 2 % 2 else "dark")
    for place, point in enumerate(tour.scene.points):
        stage.at(place)
        shown = tour.show.place(point.on)
        assert shown is not None
        qtbot.waitUntil(lambda shown=shown: tour.spotlight.lit == in_sight(shown, window.pages))  # type: ignore[misc]
        assert unread_from_afar(shown, bar) == [], f"{tour.scene.file.stem}, point {place + 1}"
    assert window.size().toTuple() == theme.STAGE


def check_try_it(qtbot: QtBot, window: MainWindow, tour: Tour) -> None:
    """The controls are handed over, set as the scene has them, and the scene can be played again."""
    bar, page = window.touring.bar, window.page
    button = bar.findChild(QPushButton, "scene_answer")
    assert button is not None
    button.click()
    assert tour.scene.answer in bar.question.text()
    bar.copy.click()
    assert QGuiApplication.clipboard().text() == tour.scene.command
    bar.try_button.click()
    assert tour.trying
    assert not tour.spotlight.isVisible()
    assert page.docks["setup"].isVisible()
    assert page.batching.form["mode"].get() == "static"
    assert page.composer.isVisible()
    assert len(page.composer.draft().file) == tour.scene.count
    bar.try_button.click()
    qtbot.waitUntil(lambda: not tour.trying and tour.over, timeout=WAIT)
