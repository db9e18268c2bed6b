"""The beams panel: the tree of real searches, as their records and their results tell it."""

import pytest
from PySide6.QtCore import QPoint, QRectF, Qt
from pytestqt.qtbot import QtBot

from app.inside.beams.history import BeamHistory, Search
from app.inside.beams.panel import BeamsPanel
from app.inside.beams.tree import EMPTY
from app.playback.scope import Scope
from app.ui.look import theme
from engine import Engine, EngineConfig, SamplingParams, Trace
from engine.core import Stream
from engine.trace import Fate

WIDTH = 4
PARAMS = SamplingParams(max_tokens=90, beam_width=WIDTH, length_penalty=0.8)


@pytest.fixture(scope="module")
def searched(engine: Engine) -> tuple[Trace, Stream]:
    """A search that ends by itself, after another request and before a search of two."""
    engine.begin(EngineConfig(max_running=16))
    engine.submit("The dog ran", SamplingParams(max_tokens=8)).result(60)
    stream = engine.submit("Once upon a time, there was a little", PARAMS)
    stream.results(60)
    engine.submit("The sun was", SamplingParams(max_tokens=6, beam_width=2)).results(60)
    return engine.trace, stream


@pytest.fixture
def panel(qtbot: QtBot, scope: Scope, searched: tuple[Trace, Stream]) -> BeamsPanel:
    panel = BeamsPanel(scope)
    qtbot.addWidget(panel)
    panel.resize(900, 400)
    panel.show()
    scope.show(searched[0])
    scope.catch_up()
    panel.catch_up()
    return panel


def search_of(searched: tuple[Trace, Stream]) -> Search:
    history = BeamHistory()
    for record in searched[0].records:
        history.feed(record)
    assert sorted(history.searches) == [1, 2]
    return history.searches[searched[1].request]


def test_the_tree_ends_in_the_results_best_first(searched: tuple[Trace, Stream]) -> None:
    search, results = search_of(searched), searched[1].results()
    finished = search.finished(len(search.columns) - 1)
    assert [[each.token for each in leaf.path] for leaf in finished] == [list(one.token_ids) for one in results]
    assert [search.score(leaf) for leaf in finished] == pytest.approx([one.score for one in results], abs=1e-5)
    for leaf, one in zip(finished, results):
        steps = [after.total - before.total for before, after in zip(leaf.path, leaf.path[1:])]
        assert steps == pytest.approx(one.logprobs[1:], abs=1e-4)


def test_every_column_keeps_its_best_and_continues_the_one_before(searched: tuple[Trace, Stream]) -> None:
    search = search_of(searched)
    assert len(search.columns) == max(each.length for each in search.columns[-1].candidates)
    before = [None]
    for column in search.columns:
        totals = [each.total for each in column.candidates]
        assert totals == sorted(totals, reverse=True)
        assert all(each.parent in before for each in column.candidates)
        if column is not search.columns[-1]:
            assert sorted(each.branch for each in column.live) == list(range(WIDTH))
        before = list(column.live)
    assert any(each.fate is Fate.PRUNED for each in search.columns[0].candidates)


def test_what_is_certain_is_what_the_stream_had_told(searched: tuple[Trace, Stream]) -> None:
    search, stream = search_of(searched), searched[1]
    first = [delta for delta in stream.deltas if delta.sample == 0]
    for place, column in enumerate(search.columns[:-1]):
        told = sum(len(delta.token_ids) for delta in first if delta.time <= column.ended)
        assert search.certain(place) == told
    assert search.certain(len(search.columns) // 2) > 0


def test_the_panel_says_where_the_search_stands_and_a_click_goes_to_a_step(
    qtbot: QtBot, panel: BeamsPanel, scope: Scope, searched: tuple[Trace, Stream]
) -> None:
    assert "request 2 · 2 beams" in panel.summary.accessibleName()
    scope.select(1)
    panel.catch_up()
    search = search_of(searched)
    assert f"request 1 · {WIDTH} beams" in panel.summary.accessibleName()
    assert f"{WIDTH} finished" in panel.summary.accessibleName()
    spots = panel.tree.spots()
    assert {spot.place for spot in spots} == set(range(spots[0].place, len(search.columns)))
    assert len(spots) == 2 * WIDTH * len({spot.place for spot in spots})
    assert panel.tree.width() - max(spot.box.right() for spot in spots) < 1
    target = spots[0]
    tip = panel.tree.tip(target.box.center())
    assert tip.startswith(target.candidate.said)
    assert f"{target.candidate.total:.4f}" in tip
    at = QPoint(int(target.box.center().x()), int(target.box.center().y()))
    qtbot.mouseClick(panel.tree, Qt.MouseButton.LeftButton, pos=at)
    panel.catch_up()
    assert scope.moment == search.columns[target.place].ended
    assert panel.tree.place == target.place
    scope.seek(0.0)
    panel.catch_up()
    assert not panel.tree.spots()


def test_the_table_lists_every_candidate(panel: BeamsPanel, scope: Scope, searched: tuple[Trace, Stream]) -> None:
    scope.select(1)
    panel.catch_up()
    facts, search = panel.facts(), search_of(searched)
    assert len(facts.rows) == min(500, sum(len(column.candidates) for column in search.columns))
    last = facts.rows[-2 * WIDTH :]
    assert [row[7] for row in last] == [each.total for each in search.columns[-1].candidates]
    assert {row[-1] for row in facts.rows} == {"lives on", "pruned", "finished"}
    panel.row_chosen(0)
    assert scope.moment == search.columns[search.place_at(scope.moment)].ended


@pytest.mark.parametrize("name", ["dark", "light"])
def test_paths_that_live_on_and_pruned_ones_are_told_apart(name: str, panel: BeamsPanel, scope: Scope) -> None:
    theme.set_theme(name)
    scope.select(1)
    panel.catch_up()
    search = panel.tree.search
    assert search is not None
    path = search.leading(len(search.columns) // 2)[0].path
    scope.seek(search.columns[len(path) - 1].ended)
    panel.catch_up()
    spots = panel.tree.spots()
    best = next(spot for spot in spots if spot.candidate is path[-2])
    spot = next(spot for spot in spots if spot.candidate.fate is Fate.PRUNED)
    picture = panel.tree.grab().toImage()

    def inked(box: QRectF) -> int:
        """How many pixels have the accent's colour."""
        accent = theme.current().accent
        xs, ys = range(int(box.left()) + 1, int(box.right())), range(int(box.top()), int(box.bottom()))
        colors = [picture.pixelColor(x, y) for x in xs for y in ys]
        parts = [(c.red() - accent.red(), c.green() - accent.green(), c.blue() - accent.blue()) for c in colors]
        return sum(max(map(abs, part)) < 30 for part in parts)

    assert inked(best.box) > 5
    assert not inked(spot.box)


def test_without_a_search_it_says_how_to_get_one(qtbot: QtBot, scope: Scope) -> None:
    panel = BeamsPanel(scope)
    qtbot.addWidget(panel)
    panel.catch_up()
    assert panel.tree.accessibleDescription() == EMPTY
    assert panel.facts().rows == []
