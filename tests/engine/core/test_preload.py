"""Children of a server that left a third of the imports out say what an engine here says, and miss nothing."""

from __future__ import annotations

import pytest

from engine import Engine, EngineConfig, EngineProcess, ModelSpec, SamplingParams
from engine.jobs.job import run_job

GREEDY = SamplingParams(max_tokens=8, temperature=0.0)


def test_the_compiler_is_left_out_and_can_be_imported_afterwards() -> None:
    assert run_job("tests.engine.jobs.spawned:compiler", None) == [False, 3.0]


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8-plain", "awq", "torchao-int8"])
def test_the_text_is_that_of_an_engine_in_a_process_that_imported_all(quantization: str) -> None:
    spec, config = ModelSpec("demo", quantization), EngineConfig(max_running=2)
    with EngineProcess(spec, config, threads=1) as there, Engine(spec, config, threads=1) as here:
        assert here.submit("The fox", GREEDY).result().text == there.submit("The fox", GREEDY).result().text
