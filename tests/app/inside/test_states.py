"""States of layers that keep one, as the views of a trace tell them."""

import numpy as np
import pytest
from PySide6.QtCore import QPointF
from pytestqt.qtbot import QtBot

from app.inside.attention.history import Seen
from app.inside.kv_map.history import KvHistory
from app.inside.kv_map.state_strip import StateStrip
from app.inside.step.kernels import TITLES
from app.session.memory.device import device_bill
from app.ui.forms.config_form import ConfigForm
from app.words import kv_words
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace
from engine.trace import attended

WHOLE = 4 * 4 * (8 * 32 * 32 + 4 * 512)  # bytes of a request's: four layers' in float32


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Three requests where four may run; the second is the shortest."""
    with Engine(ModelSpec("demo-hybrid"), EngineConfig(max_running=4, kv_memory=1 << 22), threads=1) as engine:
        streams = [engine.submit([9 + n] * 20, SamplingParams(max_tokens=new, temperature=0, ignore_eos=True))
                   for n, new in enumerate((24, 6, 24))]  # fmt: skip
        for stream in streams:
            stream.result(timeout=60)
        return engine.trace


def test_a_cell_below_the_pool_is_whose_state_a_slot_holds(trace: Trace, qtbot: QtBot) -> None:
    records = list(trace.records)
    history = KvHistory()
    history.take(records)
    strip = StateStrip()
    qtbot.addWidget(strip)
    strip.resize(400, 20)
    said = []
    for place in range(len(trace.steps)):
        state = history.at(place, records)
        assert (state.state_slots, state.state_bytes) == (4, WHOLE)
        strip.show_state(state)
        owners = [strip.tip(box.center()) for box in strip._cells()]
        said.append([int(words.split()[1].rstrip(":")) if words.startswith("request") else -1 for words in owners])
    assert max(said, key=lambda slots: sum(owner >= 0 for owner in slots)) == [0, 1, 2, -1]
    assert [0, -1, 2, -1] in said, "the shortest has gone"
    assert said[-1] == [-1] * 4
    assert strip.words() == "States of 0 of 4 requests that may run, 160 KB each"
    assert strip.tip(QPointF(1, 1)) == strip.words()
    strip.resize(150, 20)
    assert 0 < len(strip._cells()) <= 4
    assert not strip.grab().isNull()


def test_what_states_take_is_told_beside_the_pool(trace: Trace) -> None:
    header = trace.header
    bill = device_bill(header, None)
    assert [(item.name, item.count) for item in bill.items if item.name in ("KV pool", "states")] == [
        ("KV pool", header.pool_bytes),
        ("states", 4 * WHOLE),
    ]
    assert sum(item.count for item in bill.items) == bill.total
    assert kv_words("", header.kv_token_bytes, WHOLE) == "KV 2 KB a token, 160 KB a request"
    assert header.kernels is None or {"convolution", "delta_rule"} <= {*header.kernels.names} & {*TITLES}


def test_a_model_of_states_is_not_asked_for_what_would_have_them_go_back(qtbot: QtBot) -> None:
    form = ConfigForm("batching")
    qtbot.addWidget(form)
    rows = form._form.rows
    assert not rows["prefix_caching"].isHidden()
    form.offer_going_back(True)
    assert all(rows[name].isHidden() for name in ("prefix_caching", "preemption", "speculation"))
    form.set_config(EngineConfig(prefix_caching=True))
    assert not rows["prefix_caching"].isHidden(), "what is on can be switched off"
    form.offer_going_back(False)
    assert not rows["speculation"].isHidden()


def test_layers_that_attend_go_by_their_own_numbers(qtbot: QtBot) -> None:
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True, attention=True)
    with Engine(ModelSpec("demo-hybrid"), EngineConfig(max_running=1, kv_memory=1 << 22), threads=1) as engine:
        engine.submit([9] * 12, params).result(timeout=60)
        trace = engine.trace
    card = trace.header.model
    told = [one.weights for step in trace.steps for one in attended(step, trace.header)]
    assert card.attention_layers == (3, 5)
    assert [weights.shape for weights in told] == [(2, 8, 12 + i) for i in range(3)]
    assert all(np.abs(weights.sum(-1) - 1).max() < 0.1 for weights in told)
    assert Seen(1, 2).words(card.attention_layers) == "layer 6, head 3"
    assert Seen(0).words(card.attention_layers) == "layer 4"
