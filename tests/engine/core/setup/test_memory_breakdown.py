"""The items of the device's memory add up, and what a step takes is near the truth."""

from dataclasses import fields, replace

import pytest
import torch

from engine import Engine, EngineConfig, ModelSpec
from engine.config import MODES
from engine.core import machine
from engine.core.setup.activations import activation_bytes, computed_bytes, measured_bytes
from engine.core.setup.memory_breakdown import bill_of
from engine.core.setup.rehearsal import Rehearsal
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.memory.live_bytes import LiveBytes
from engine.models.loading import LoadedModel, load
from engine.runner.padded import PaddedRunner
from engine.runner.paged_cpu import PagedRunner
from engine.trace import MemoryBreakdown, Roof

BLOCKS = 1024


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load(ModelSpec("demo"))


def rehearsal(model: LoadedModel, config: EngineConfig) -> Rehearsal:
    runner = (PagedRunner if config.paged else PaddedRunner)(model, config, BLOCKS)
    return Rehearsal(runner, config, BLOCKS, model.card.context, DetokenizerFactory(model.tokenizer))


def parts(bill: MemoryBreakdown) -> list[int]:
    return [getattr(bill, f.name) for f in fields(bill) if f.name != "total"]


def test_the_items_add_up_to_the_devices_memory(demo: Engine) -> None:
    header = demo.trace.header
    bill = header.bill
    assert bill is not None
    assert sum(parts(bill)) == bill.total == machine.memory()[0]
    assert min(parts(bill)) >= 0
    assert bill.weights == header.model.weight_bytes
    assert bill.kv_pool == header.blocks * header.config.block_size * header.model.kv_token_bytes
    assert bill.runtime > 50 << 20, "Python and torch take room"
    assert bill.free > 0


def test_every_config_has_its_own_bill(demo: Engine) -> None:
    small = demo.begin(replace(demo.config, kv_memory=1 << 22, token_budget=64)).header.bill
    large = demo.begin(replace(demo.config, kv_memory=1 << 23, token_budget=512)).header.bill
    assert small is not None
    assert large is not None
    assert (small.kv_pool, large.kv_pool) == pytest.approx((1 << 22, 1 << 23), rel=0.05)
    assert 0 < small.activations < large.activations
    assert small.graphs == large.graphs == 0, "on a CPU what a recorded step computes in is its activations"


def test_graphs_are_an_item(model: LoadedModel) -> None:
    bill = bill_of(model, 1 << 20, 5, 7, 1 << 20)
    assert bill.graphs == 1 << 20
    assert sum(parts(bill)) == bill.total


def test_a_pool_larger_than_the_memory_is_cut(model: LoadedModel) -> None:
    bill = bill_of(model, 1 << 60, 5, 7, 9)
    assert sum(parts(bill)) == bill.total
    assert bill.graphs == 0
    assert (bill.activations, bill.runtime, bill.other, bill.free) == (0, 0, 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_activations_are_those_of_the_whole_step(model: LoadedModel, mode: str) -> None:
    config = EngineConfig(mode=mode, max_running=16, token_budget=1024)
    played = rehearsal(model, config)
    rows, length = played.fill(config.token_budget)
    whole = measured_bytes(played, rows, length)
    slow = Roof((1,), (1.0,), 2 * model.card.body_parameters * 2000.0)  # 2,000 tokens a second
    assert activation_bytes(played, model, config, slow) == pytest.approx(whole, rel=0.2)
    fast = Roof((1,), (1.0,), 1e18)
    assert activation_bytes(played, model, config, fast) == pytest.approx(whole, rel=0.02)
    assert computed_bytes(model, rows * length, rows) == pytest.approx(whole, rel=0.2)


def test_a_model_that_takes_seconds_is_computed(model: LoadedModel) -> None:
    config = EngineConfig()
    played = rehearsal(model, config)
    rows, length = played.fill(config.token_budget)
    assert activation_bytes(played, model, config, Roof((1,), (1.0,), 1e6)) == computed_bytes(
        model, rows * length, rows
    )
    assert activation_bytes(played, model, config, None) == computed_bytes(model, rows * length, rows)


def test_the_counter_of_live_bytes_counts_as_one_would_by_hand() -> None:
    with LiveBytes() as counter:
        a = torch.zeros(1000, dtype=torch.float32)
        assert counter.live == 4000
        b = a + 1
        view = b[10:20]
        b += 2
        assert counter.live == 8000, "a view and an operation in place take nothing"
        del b
        assert counter.live == 8000, "its view still holds it"
        del view
        assert counter.live == 4000
        del a
    assert (counter.live, counter.peak) == (0, 8000)


def test_a_pool_too_small_for_a_prompt_has_no_activations_to_tell(model: LoadedModel) -> None:
    config = EngineConfig(max_running=1, block_size=1)
    runner = PagedRunner(model, config, 1)
    played = Rehearsal(runner, config, 1, model.card.context, DetokenizerFactory(model.tokenizer))
    assert activation_bytes(played, model, config, None) == 0
