"""A quantized model says the same in every batching mode: exactly in float32, by its logits in bfloat16."""

from collections.abc import Callable, Sequence
from itertools import product, takewhile
from pathlib import Path

import pytest
import torch

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.config import MODES, PAGED_MODES
from engine.models.loading import load
from tests.engine.core.test_exactness import Reference, prompts

NEW_TOKENS = 10
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
SWITCHES = [(mode, False) for mode in MODES] + [(mode, True) for mode in PAGED_MODES]
RUNNERS = [("sequential", False), ("continuous-padded", False), ("chunked", True)]  # one of each, padded and paged
EXACT = ("nf4", "nf4-double", "awq", "int8", "int8-plain", "torchao-int8")
# All of one architecture, and of others some each: their layers are joined otherwise, and coded alike.
CODED = [*product(("llama",), EXACT), *product(("qwen3",), EXACT[::2]), *product(("gemma2",), EXACT[1::2])]
MIXTURES = [("mixtral", "nf4-double"), ("qwen3 moe", "int8"), ("mixtral", "awq")]

Folder = Callable[[str, str], Path]
Said = list[tuple[list[int], list[float]]]  # the tokens and log-probabilities of each prompt


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str], Path]) -> Folder:
    """The checkpoint of a tiny model that a quantization is loaded from."""

    def of(name: str, quantization: str) -> Path:
        plain = tiny_folder(name)
        awq = plain.with_name(f"{name} awq")
        if quantization == "awq" and not awq.exists():
            save_rounded_awq(plain, awq, group=32)
        return awq if quantization == "awq" else plain

    return of


def said_in_every_mode(
    folder: Path, quantization: str, dtype: str, switches: Sequence[tuple[str, bool]] = SWITCHES
) -> dict[tuple[str, bool], Said]:
    said = {}
    with Engine(ModelSpec(str(folder), quantization, dtype, "cpu"), EngineConfig(max_running=4), threads=1) as engine:
        assert engine.card.quantization == quantization
        assert engine.card.dtype == dtype
        for mode, caching in switches:
            config = EngineConfig(mode, 4, 32, block_size=4, prefix_caching=caching, longest_wait=0.01)
            engine.begin(config)
            streams = [engine.submit(prompt, GREEDY) for prompt in prompts()]
            done = [stream.result(timeout=60) for stream in streams]
            said[mode, caching] = [(list(c.token_ids), list(c.logprobs)) for c in done]
    return said


@pytest.mark.parametrize(("name", "quantization"), [*CODED, *MIXTURES])
def test_in_float32_every_mode_gives_the_tokens_of_transformers(name: str, quantization: str, folder: Folder) -> None:
    path = folder(name, quantization)
    module = load(ModelSpec(str(path), quantization, "float32", "cpu")).module
    module.set_attn_implementation("eager")
    expected = [Reference(module)(prompt, NEW_TOKENS)[0] for prompt in prompts()]
    assert len({token for tokens in expected for token in tokens}) >= 10
    # What a mode does with a model, tests of modes hold; kernels of 4 bits and of 8 are tried in each.
    switches = SWITCHES if name == "llama" and quantization in ("nf4", "int8") else RUNNERS
    for switch, said in said_in_every_mode(path, quantization, "float32", switches).items():
        assert [tokens for tokens, _ in said] == expected, switch


@pytest.mark.parametrize("quantization", EXACT)
def test_in_bfloat16_modes_differ_by_rounding_alone(quantization: str, folder: Folder) -> None:
    """Until two modes part, each token's log-probability is nearly the same in both; they part only where two tokens
    are nearly as likely."""
    switches = SWITCHES if quantization in ("nf4", "int8") else RUNNERS
    said = said_in_every_mode(folder("llama", quantization), quantization, "bfloat16", switches)
    expected = said["sequential", False]
    differences = []
    for given in said.values():
        for (tokens, logprobs), (others, other_logprobs) in zip(given, expected):
            alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(tokens, others))))
            differences += [abs(a - b) for a, b in zip(logprobs[: alike + 1], other_logprobs)]
    assert max(differences) < 0.35
    assert torch.tensor(differences).median() < 0.03
