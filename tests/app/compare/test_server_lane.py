"""A lane that is a server, in the editor, in figures and in its timeline. The engine's tests race real ones."""

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.compare.choice import LaneChoice, RaceChoice
from app.compare.lanes.editor import SERVER, LaneEditor
from app.compare.lanes.outside import outside_words
from app.compare.lanes.tally import LaneTally, waste_words, wasted_words
from app.compare.words import sentence_of, title_of
from app.inside.timeline.runs import TimelineCells
from app.inside.timeline.words import cell_words
from engine import EngineConfig
from engine.trace import Ended, FinishReason, Kind, Record, RequestIndex
from tests.engine.trace.hand_made import header, step, submitted

URL = "http://127.0.0.1:8000"


def choice(text: str) -> LaneChoice:
    return LaneChoice.parse(text)


def test_a_server_is_chosen_by_its_address_and_kept(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    editor = LaneEditor(host)
    editor.show_lane(choice("static:8"), first=True, last=False)
    editor.model.set_value(SERVER)
    assert not editor.form.isVisibleTo(editor)
    assert editor.url.isVisibleTo(editor)
    assert "address" in editor.note.text()
    with qtbot.waitSignal(editor.edited) as edited:
        editor.url.setText(f"{URL}/v1")
        editor.there.setText("llama3:8b")
        editor.key.setText("GPU_KEY")
        editor.url.editingFinished.emit()
    (chosen,) = edited.args
    assert (chosen.lane.server.url, chosen.lane.server.model, chosen.lane.server.key) == (URL, "llama3:8b", "GPU_KEY")
    kept = RaceChoice.from_json(RaceChoice(lanes=(chosen,)).to_json()).lanes[0]
    assert kept.lane.server == chosen.lane.server
    editor.key.setText("sk-1234 is no name")
    editor.key.editingFinished.emit()
    assert "environment variable" in editor.note.text()
    editor.key.setText("")
    editor.model.set_value("demo")
    assert editor.choice().lane.server is None


def test_it_says_who_it_is() -> None:
    lane = choice(f"server={URL}").lane
    assert title_of(lane) == "Server 127.0.0.1:8000"
    assert "as its clients see it" in sentence_of(lane)
    assert title_of(choice(f"server={URL}:name=vLLM").lane) == "vLLM"


@pytest.fixture
def records() -> list[Record]:
    """One request, of which five tokens came in two pieces."""
    heard = [step(i, at, at, [(0, i, 1, Kind.DECODE)], {0: 1}) for i, at in enumerate((1.0, 3.0))]
    end = Ended(3.0, 0, FinishReason.STOP, token=np.full(3, -1), logprob=np.zeros(3), text_end=np.zeros(3, int))
    return [replace(header(EngineConfig()), outside="there:1"), submitted(0.0, 0, 2), *heard, end]


def test_what_is_unknown_is_said_to_be(records: list[Record]) -> None:
    tally = LaneTally()
    tally.feed(records)
    figures = tally.figures()
    assert figures.outside
    assert figures.rate == pytest.approx(5 / 3)
    assert "unknown from outside" in wasted_words(figures)
    assert "unknown from outside" in waste_words(figures)


def test_a_request_is_at_work_from_its_first_piece_to_its_last(records: list[Record]) -> None:
    cells = TimelineCells(lambda place: records[2 + place])  # type: ignore[arg-type,return-value]
    cells.feed(records)
    assert list(zip(cells.request.tolist(), cells.begins.tolist(), cells.ends.tolist())) == [(0, 1.0, 3.0)]
    assert cells.changed == 0.0
    assert cells.at(0.5, 0) is None
    cell = cells.at(2.0, 0)
    assert cell is not None
    assert cell.heard
    assert "unknown from outside" in cell_words(cell)


def test_the_tip_of_its_bar_says_what_its_client_saw_and_what_is_not_known(records: list[Record]) -> None:
    cells, index = TimelineCells(lambda place: records[2 + place]), RequestIndex()  # type: ignore[arg-type,return-value]
    cells.feed(records)
    for record in records[:-1]:
        index.feed(record)
    cell = cells.at(2.0, 0)
    assert cell is not None
    running = outside_words(cell, index.requests, 0.0).splitlines()
    assert running[0] == "request 0 · row 1"
    assert running[2] == "TTFT 1.00 s · 2 pieces of text so far · median gap 2.00 s"
    assert running[3] == "it goes on"
    index.feed(records[-1])
    over = outside_words(cell, index.requests, 0.0).splitlines()
    assert over[2].startswith("TTFT 1.00 s · 5 tokens · ")
    assert over[3].endswith(" after 3.00 s")
    assert over[-1].startswith("unknown from outside: its steps, its prefill")
    assert "unknown from outside" in outside_words(cell, {}, 0.0)
