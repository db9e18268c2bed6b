"""Checks of the GPU's sampler on a pretend GPU, run by `tests/engine/core/triton_path/test_pretend_gpu.py`: what its
host waits for, and what rows with rules take."""

from collections.abc import Sequence

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("run by test_pretend_gpu.py", allow_module_level=True)

from engine import SamplingParams
from engine.decoding.constraints import Grammars
from engine.decoding.token_rules import token_rules
from engine.memory.rules import LOGITS
from engine.runner.sampling import adjustments
from engine.scheduler.request import Branch
from tests.engine.decoding.tokenizer_kinds import tokenizer
from tests.engine.kernels.sampling_case import Pair, make_branch, make_logits
from tests.pretend_gpu import tensor

VOCABULARY, END = 3072, 2
HERE = torch.device("cuda", 0)
PROMPT = 5, 9, 9, 31
GRAMMARS = Grammars(tokenizer("demo"), VOCABULARY, [END])
PENALTIES = SamplingParams(temperature=0, repetition_penalty=1.4, frequency_penalty=0.5)
WAYS = (
    PENALTIES.with_(logit_bias={7: 3.0}),
    PENALTIES.with_(temperature=0.8, seed=3, min_tokens=3),
    SamplingParams(temperature=0, repetition_penalty=1.3),
    PENALTIES.with_(regex="[a-z ]{40}"),
    SamplingParams(temperature=0.9, regex="[A-Z]+"),
)


def branches_of(ways: Sequence[SamplingParams]) -> list[Branch]:
    found = [make_branch(params, slot, tokens=PROMPT, seed=slot) for slot, params in enumerate(ways)]
    for branch in found:
        params = branch.request.params
        branch.request.rules = token_rules(params, lambda text: [], [END], VOCABULARY)
        (branch.matcher,) = GRAMMARS.matchers(params, 1)
        branch.ruled = branch.request.rules is not None or branch.matcher is not None
    return found


def places(pair: Pair, at: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = len(pair.branches)
    return torch.arange(rows, dtype=torch.int32).to(HERE), torch.full((rows,), at, dtype=torch.int32).to(HERE)


@pytest.mark.parametrize("rows", [1, 100])
def test_rows_with_rules_are_drawn_without_waiting_in_parts_or_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(branches_of(WAYS), VOCABULARY, HERE)
    assert [branch.ruled for branch in pair.branches] == [True, True, False, True, True]
    for turn in range(3):
        logits, at = make_logits(len(WAYS), VOCABULARY, turn), len(PROMPT) + turn
        there, given = logits.to(HERE), places(pair, at)
        tokens = pair.oracle(logits, pair.branches, [at] * len(WAYS)).tokens.tolist()
        torch.cuda.set_sync_debug_mode("error")
        with monkeypatch.context() as patch:
            patch.setattr(adjustments, "PART", 4 * VOCABULARY * rows)
            drawn = pair.sampler(there, *given, pair.branches, pair.last_tokens)
        torch.cuda.set_sync_debug_mode("default")
        assert drawn.tokens.tolist() == tokens
        assert pair.sampler._seen is not None
        for branch, token in zip(pair.branches, tokens, strict=True):
            branch.tokens.append(token)
            assert branch.matcher is None or branch.matcher.advance(token)
            if branch.request.params.repetition_penalty != 1.0:
                seen = pair.sampler._seen[branch.slot].cpu().nonzero()[:, 0].tolist()
                assert seen == sorted(set(branch.tokens))


@pytest.mark.parametrize("params", [WAYS[0], WAYS[3], WAYS[4]])
def test_rows_with_rules_take_no_more_than_a_step_is_counted_with(
    params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adjustments, "PART", 4 * VOCABULARY)
    pair = Pair(branches_of([params] * 16), VOCABULARY, HERE)
    logits = make_logits(16, VOCABULARY, 0).to(HERE)
    card, given = tensor.cards[0], places(pair, len(PROMPT))
    card.most_allocated = before = card.allocated
    pair.sampler(logits, *given, pair.branches, pair.last_tokens)
    assert card.most_allocated - before < (4 * LOGITS + 1) * logits.numel(), "a sixteenth between, and some words"
