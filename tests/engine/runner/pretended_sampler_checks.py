"""Checks of the GPU's sampler that `test_gpu_sampler.py` runs on a pretend GPU: the host waits for none of it."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("run by test_gpu_sampler.py", allow_module_level=True)

from engine import SamplingParams
from engine.decoding.token_rules import token_rules
from engine.scheduler.request import Branch
from tests.engine.kernels.sampling_case import Pair, make_branch, make_logits

VOCABULARY, END = 300, 2
HERE = torch.device("cuda", 0)
WAYS = (
    SamplingParams(temperature=0, repetition_penalty=1.4, logit_bias={7: 3.0}),
    SamplingParams(temperature=0.8, seed=3, repetition_penalty=1.2, min_tokens=3, frequency_penalty=0.5),
    SamplingParams(temperature=0, repetition_penalty=1.3),
)


def ruled(params: SamplingParams, slot: int) -> Branch:
    branch = make_branch(params, slot, tokens=(5, 9, 9, 31), seed=slot)
    branch.request.rules = token_rules(params, lambda text: [], [END], VOCABULARY)
    branch.ruled = branch.request.rules is not None
    return branch


def test_rows_with_rules_are_drawn_without_waiting() -> None:
    pair = Pair([ruled(params, slot) for slot, params in enumerate(WAYS)], VOCABULARY, HERE)
    assert [branch.ruled for branch in pair.branches] == [True, True, False]
    slots = torch.arange(3, dtype=torch.int32).to(HERE)
    places = torch.full((3,), 4, dtype=torch.int32).to(HERE)
    for turn in range(3):
        logits = make_logits(3, VOCABULARY, turn)
        there = logits.to(HERE)
        torch.cuda.set_sync_debug_mode("error")
        try:
            drawn = pair.sampler(there, slots, places + turn, pair.branches, pair.last_tokens)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        tokens = pair.oracle(logits, pair.branches, [4 + turn] * 3).tokens.tolist()
        assert drawn.tokens.tolist() == tokens
        for branch, token in zip(pair.branches, tokens, strict=True):
            branch.tokens.append(token)
        assert pair.sampler._seen is not None
        for branch in pair.branches[:2]:
            assert pair.sampler._seen[branch.slot].cpu().nonzero()[:, 0].tolist() == sorted(set(branch.tokens))
