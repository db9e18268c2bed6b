"""The bench runs from end to end at a tiny size, and its report has every line. Nothing is said of how fast."""

import json
import sys

import pytest

from engine.bench.cpu import run as cpu
from engine.bench.cpu.outside import OutsidePeer
from engine.bench.subject import Lengths, Shape, make_case, random_llama
from engine.config.specs import InvalidInput

TINY = Shape(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, vocabulary=256, context=256)


@pytest.fixture(scope="module")
def report():
    return cpu.run(
        prompts=(4, 9), rounds=2, threads=1, shape=TINY, lengths=Lengths(4, 12), step_tokens=6, waiting=(5, 500),
        progress=False,
    )  # fmt: skip


def test_each_side_has_a_positive_rate_in_each_case(report):
    assert [case.prompts for case in report.cases] == [4, 9]
    for case in report.cases:
        assert [side.name for side in case.sides] == [
            "this engine",
            "this engine, static batch of 8",
            "transformers generate_batch",
            "transformers generate, static batch of 8",
            "transformers generate, one by one",
        ]
        for side in case.sides:
            assert side.rate > 0
            assert len(side.seconds) == 2
            assert side.settings


def test_static_batches_of_this_engine_stand_beside_those_of_transformers(report):
    ours, theirs = report.cases[1].sides[1], report.cases[1].sides[3]
    assert report.cases[1].static_is_times == ours.rate / theirs.rate
    assert "its static batch is ×" in report.text()
    assert json.loads(report.json())["cases"][1]["static_is_times"] == report.cases[1].static_is_times


def test_one_by_one_runs_on_fewer_prompts_and_says_so(report):
    assert report.cases[1].sides[-1].prompts == cpu.ONE_BY_ONE_PROMPTS
    assert f"{cpu.ONE_BY_ONE_PROMPTS} of the prompts" in report.text()


def test_the_whole_workload_has_a_bound_of_products_and_of_reading_the_cache(report):
    for case in report.cases:
        bound, tokens = case.bound, case.prompt_tokens + case.output_tokens - case.prompts
        a_layer = 64 * (64 + 2 * 32 + 64 + 3 * 128)
        assert bound.operations == 2 * (tokens * 2 * a_layer + case.output_tokens * 64 * 256)
        assert bound.bytes_read > tokens * 2 * 2 * 32 * 4
        assert 0 < case.share_of_bound < 1.5
    assert "the bound of the workload" in report.text()
    assert json.loads(report.json())["cases"][0]["share_of_bound"] == report.cases[0].share_of_bound


def test_a_peer_of_another_environment_answers_or_says_why_not(tmp_path):
    with pytest.raises(InvalidInput, match="the peers are vllm"):
        OutsidePeer.parse("tgi=/usr/bin/python3")
    with pytest.raises(InvalidInput, match="no Python is there"):
        OutsidePeer.parse(f"vllm={tmp_path}/python")
    peer = OutsidePeer("vllm", sys.executable)
    try:
        with pytest.raises(RuntimeError, match="No module named 'vllm'"):
            peer.start(random_llama(TINY), 4, 256)
    finally:
        peer.close()


def test_the_step_has_a_bound_at_the_same_batch_and_context(report):
    assert [step.batch for step in report.steps] == [4, 9]
    for step in report.steps:
        assert len(step.bounds) == 3
        assert all(seconds > 0 for seconds in step.bounds.values())
        assert step.bound == min(step.bounds.values())
        assert step.engine > step.forward > 0
        assert 0 < step.outside < 1
        assert step.context > 6


def test_the_text_names_machine_versions_threads_allocator_noise_and_scheduler(report):
    text = report.text()
    machine = ("M parameters", "cores", "torch 2.", "transformers 5.", "Allocator", "1 thread", "other processes took")
    peers = ("max_batch_tokens", "cache")
    step = ("bare forward, packed weights", "of the bound", "outside the model's forward")
    for part in (*machine, *peers, *step, "with 5 waiting", "with 500 waiting"):
        assert part in text


def test_the_json_has_all_raw_numbers(report):
    values = json.loads(report.json())
    side = values["cases"][0]["sides"][2]
    assert len(side["seconds"]) == 2
    assert side["engine_is_times"] > 0
    assert values["steps"][0]["ratio"] > 0
    assert values["scheduler"]["500"] > 0
    assert 0 <= values["noise"]["others"] <= 1


def test_a_shorter_case_is_the_beginning_of_a_longer_one():
    assert make_case(3, TINY, Lengths()).prompts == make_case(8, TINY, Lengths()).first(3).prompts
    assert all(16 <= n <= 128 for n in make_case(50, TINY, Lengths()).new_tokens)
