"""In float32, tokens and logits equal transformers': many decoder types, batched, preempted, cancelled."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, measure
from engine.trace import FinishReason, Trace
from engine.trace.column import Array
from tests.engine.captured_logits import answers
from tests.engine.tiny_models import TINY_MODELS, random_prompts

PROMPT_LENGTHS = (3, 17, 1, 41, 9, 26)  # shorter and longer than a block and a window; one of a single token
NEW_TOKENS = 24
CANCELLED = 3  # the longest prompt: it is stopped on the way
BLOCKS = 20  # of 4 tokens, for 241 tokens in all: they cannot all stay


def prompts() -> list[list[int]]:
    return random_prompts(PROMPT_LENGTHS)


@dataclass
class Reference:
    """What transformers generates, one prompt at a time, and the logits it chooses from."""

    module: PreTrainedModel

    @torch.inference_mode()
    def __call__(self, prompt: list[int], tokens: int) -> tuple[list[int], Tensor]:
        out = self.module.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return out.sequences[0, len(prompt) :].tolist(), torch.cat(out.logits)


@pytest.fixture(scope="module")
def expected(tiny_folder: Callable[[str], Path]) -> Callable[[str], list[tuple[list[int], Tensor]]]:
    """Tokens and logits of all prompts by transformers itself; computed once a model."""
    found: dict[str, list[tuple[list[int], Tensor]]] = {}

    def of(name: str) -> list[tuple[list[int], Tensor]]:
        if name not in found:
            module = AutoModelForCausalLM.from_pretrained(
                tiny_folder(name), dtype=torch.float32, attn_implementation="eager"
            )
            reference = Reference(module.eval())
            found[name] = [reference(prompt, NEW_TOKENS) for prompt in prompts()]
        return found[name]

    return of


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)


GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)


@pytest.mark.parametrize(("name", "depth"), [(name, place % 2) for place, name in enumerate(TINY_MODELS)])
def test_a_batch_gives_the_tokens_and_logits_of_transformers(
    name: str, depth: int, tiny_folder: Callable[[str], Path], expected: Callable[[str], list[tuple[list[int], Tensor]]]
) -> None:
    with Engine(ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu"), threads=1) as engine:
        memory = BLOCKS * 4 * engine.card.kv_token_bytes
        config = EngineConfig(max_running=5, token_budget=32, block_size=4, kv_memory=memory, depth=depth)
        trace, completions, logits = answers(engine, config, prompts(), GREEDY, CANCELLED)
        assert measure(trace).preemptions > 0
        assert max(step.rows for step in trace.steps) >= 3
        assert completions[CANCELLED].finish_reason is FinishReason.CANCELLED
        assert 0 < len(completions[CANCELLED].token_ids) < NEW_TOKENS
        for i, completion in enumerate(completions):
            tokens, reference_logits = expected(name)[i]
            count = len(completion.token_ids)
            assert i == CANCELLED or count == NEW_TOKENS
            assert list(completion.token_ids) == tokens[:count]
            assert_same(logits[i], reference_logits[:count])
        assert len({t for c in completions for t in c.token_ids}) >= 10


@pytest.fixture(scope="module")
def alike(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model that says the same as another, but for some tokens: its weights are a little off."""

    def of(name: str) -> Path:
        module = AutoModelForCausalLM.from_pretrained(tiny_folder(name), dtype=torch.float32)
        noise = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter *= 1 + 0.02 * torch.randn(parameter.shape, generator=noise)
        folder = tmp_path_factory.mktemp("alike") / name.replace(" ", "-")
        shutil.copytree(tiny_folder(name), folder)
        module.save_pretrained(folder)
        return folder

    return of


DRAFTED = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "phi3", "mixtral", "gpt-oss", "gpt2")


@pytest.mark.parametrize(
    ("name", "by_draft", "by_ngram"),
    [(name, *((3, "auto") if place % 2 else ("auto", 3))) for place, name in enumerate(DRAFTED)],
)
def test_drafted_tokens_change_nothing_that_is_said(
    name: str,
    by_draft: int | str,
    by_ngram: int | str,
    tiny_folder: Callable[[str], Path],
    alike: Callable[[str], Path],
    expected: Callable[[str], list[tuple[list[int], Tensor]]],
) -> None:
    """By a model that is right often, and by n-grams of prompts that say everything twice: with preemptions, prefixes
    that are found, and a request that is stopped."""
    few = EngineConfig("chunked", max_running=5, token_budget=32, block_size=4, prefix_caching=True)
    drafts = {"draft": ModelSpec(str(alike(name)))}
    with Engine(ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu"), threads=1) as engine:
        # The draft's K and V take as many bytes again.
        for kind, k, more, sides in (("draft", by_draft, drafts, 2), ("ngram", by_ngram, {}, 1)):
            memory = BLOCKS * 4 * engine.card.kv_token_bytes * sides
            trace = engine.begin(replace(few, kv_memory=memory, speculation=kind, speculated=k, **more))
            streams = [engine.submit(prompt, GREEDY) for prompt in prompts()]
            for _, _ in zip(streams[CANCELLED], range(6)):
                pass
            streams[CANCELLED].cancel()
            completions = [stream.result(timeout=60) for stream in streams]
            for i, completion in enumerate(completions):
                tokens, _ = expected(name)[i]
                assert i == CANCELLED or len(completion.token_ids) == NEW_TOKENS
                assert list(completion.token_ids) == tokens[: len(completion.token_ids)]
            assert measure(trace).preemptions > 0
            if (kind, k) == ("draft", 3):  # how many "auto" drafts depends on what steps took
                drafted, accepted = (sum(int(each.sum()) for each in of) for of in zip(*drafts_of(trace)))
                assert 0.2 * drafted < accepted < drafted


def drafts_of(trace: Trace) -> list[tuple[Array, Array]]:
    return [(step.drafted, step.accepted) for step in trace.steps]


@pytest.mark.parametrize("name", TINY_MODELS)
def test_each_model_says_at_least_ten_different_tokens_to_one_prompt(
    name: str, expected: Callable[[str], list[tuple[list[int], Tensor]]]
) -> None:
    assert max(len(set(tokens)) for tokens, _ in expected(name)) >= 10


def test_a_window_shorter_than_the_prompt_changes_what_is_said(
    expected: Callable[[str], list[tuple[list[int], Tensor]]], tiny_folder: Callable[[str], Path]
) -> None:
    """The models with windows would pass without them if the window did nothing."""
    module = AutoModelForCausalLM.from_pretrained(tiny_folder("mistral"), dtype=torch.float32, sliding_window=9)
    tokens, _ = Reference(module.eval())(prompts()[3], NEW_TOKENS)
    assert tokens != expected("mistral")[3][0]


def test_a_prompt_computed_in_parts_gives_the_same_logits_as_in_one(
    tiny_folder: Callable[[str], Path], expected: Callable[[str], list[tuple[list[int], Tensor]]]
) -> None:
    with Engine(ModelSpec(str(tiny_folder("gemma2")), device="cpu"), threads=1) as engine:
        for budget in (5, 7, 16, 64):
            config = EngineConfig(max_running=2, token_budget=budget, block_size=8)
            trace, (completion,), (logits,) = answers(engine, config, prompts()[3:4], GREEDY)
            parts = [step for step in trace.steps if step.count[0] > 1]
            assert len(parts) == -(-PROMPT_LENGTHS[3] // budget) - (PROMPT_LENGTHS[3] % budget == 1)
            assert list(completion.token_ids) == expected("gemma2")[3][0]
            assert_same(logits, expected("gemma2")[3][1])


@pytest.mark.parametrize("block_size", [1, 2, 16, 64])
def test_the_size_of_a_block_changes_nothing(
    block_size: int, tiny_folder: Callable[[str], Path], expected: Callable[[str], list[tuple[list[int], Tensor]]]
) -> None:
    config = EngineConfig(max_running=6, block_size=block_size)
    with Engine(ModelSpec(str(tiny_folder("llama")), device="cpu"), threads=1) as engine:
        _, completions, logits = answers(engine, config, prompts(), GREEDY)
    for completion, found, (tokens, reference_logits) in zip(completions, logits, expected("llama")):
        assert list(completion.token_ids) == tokens
        assert_same(found, reference_logits)


def test_logprobs_are_those_of_the_models_own_distribution(
    tiny_folder: Callable[[str], Path], expected: Callable[[str], list[tuple[list[int], Tensor]]]
) -> None:
    with Engine(ModelSpec(str(tiny_folder("qwen3")), device="cpu"), threads=1) as engine:
        completion = engine.submit(prompts()[1], GREEDY).result(timeout=60)
    tokens, logits = expected("qwen3")[1]
    chosen = logits.log_softmax(-1).gather(-1, torch.tensor(tokens)[:, None])[:, 0]
    assert_same(torch.tensor(completion.logprobs), chosen)
