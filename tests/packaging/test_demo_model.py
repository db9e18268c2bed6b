"""The models that ship: the demo's stories, measured from its weights, and the draft that shares its tokenizer."""

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import resources
from engine import Completion, Engine, EngineConfig, ModelSpec, SamplingParams, Submission, load_workload
from engine.checkpoints import inspect_model
from engine.config import OF_LAYERS, Prompt
from engine.trace import FinishReason

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
import exercises
import stories as grammar

pytestmark = pytest.mark.slow

PROMPTS = 100
SOME = 30  # of them, asked of each quantization
LIMIT = 200
COPIES = 40  # stories that are asked for again


@dataclass(frozen=True)
class Told:
    """One greedy story and the pair of nouns it was asked for."""

    nouns: tuple[str, str]
    completion: Completion

    @property
    def words(self) -> list[str]:
        return list(grammar.words(self.completion.text))


def greedy_stories(spec: ModelSpec, count: int) -> list[Told]:
    """Answers to pairs of nouns that no training story holds, all in one batch."""
    pairs = grammar.held_out_pairs(PROMPTS)[:count]
    params = SamplingParams(max_tokens=LIMIT, temperature=0)
    prompts = [[{"role": "user", "content": grammar.ask(a, b)}] for a, b in pairs]
    with Engine(spec, EngineConfig(max_running=count, kv_memory=1 << 28), threads=1) as engine:
        streams = engine.submit_many([Submission(prompt, params) for prompt in prompts])
        return [Told(pair, stream.result(timeout=100)) for pair, stream in zip(pairs, streams)]


@pytest.fixture(scope="module")
def stories() -> list[Told]:
    return greedy_stories(ModelSpec("demo"), PROMPTS)


def shares(stories: list[Told]) -> tuple[float, float, float]:
    """Of the stories those that mention both nouns, of their words those of the grammar, of the stories those that end
    by themselves."""
    known, words = grammar.vocabulary(), [word for told in stories for word in told.words]
    return (
        sum(set(told.nouns) <= set(told.words) for told in stories) / len(stories),
        sum(word in known for word in words) / len(words),
        sum(told.completion.finish_reason is FinishReason.STOP for told in stories) / len(stories),
    )


def test_nine_of_ten_stories_mention_both_nouns(stories: list[Told]) -> None:
    both = [told for told in stories if set(told.nouns) <= set(told.words)]
    assert len(both) >= 0.90 * PROMPTS


def test_nineteen_of_twenty_words_are_words_of_the_grammar(stories: list[Told]) -> None:
    known = grammar.vocabulary()
    words = [word for told in stories for word in told.words]
    assert len(words) > 30 * PROMPTS
    assert sum(word in known for word in words) >= 0.95 * len(words)


def test_nineteen_of_twenty_stories_end_by_themselves(stories: list[Told]) -> None:
    ended = [told for told in stories if told.completion.finish_reason is FinishReason.STOP]
    assert len(ended) >= 0.95 * PROMPTS


@pytest.mark.parametrize("quantization", [name for name in OF_LAYERS if name != "none"])
def test_quantized_each_way_it_still_tells_grammatical_stories(stories: list[Told], quantization: str) -> None:
    quantized = greedy_stories(ModelSpec("demo", quantization=quantization), SOME)
    for share, before in zip(shares(quantized), shares(stories[:SOME])):
        assert share >= before - 0.05
    assert len({told.completion.text for told in quantized}) == SOME


def test_the_mixture_tells_stories_as_well_and_asks_every_expert() -> None:
    pairs = grammar.held_out_pairs(PROMPTS)[:SOME]
    with Engine(ModelSpec("demo-moe"), EngineConfig(max_running=SOME, kv_memory=1 << 28), threads=1) as engine:
        params = SamplingParams(max_tokens=LIMIT, temperature=0)
        prompts = [[{"role": "user", "content": grammar.ask(a, b)}] for a, b in pairs]
        streams = engine.submit_many([Submission(prompt, params) for prompt in prompts])
        told = [Told(pair, stream.result(timeout=100)) for pair, stream in zip(pairs, streams)]
        sent = np.sum([step.expert for step in engine.trace.steps if len(step.expert)], 0).reshape(6, 8)
    assert min(shares(told)) >= 0.9
    assert (sent / sent.sum(1, keepdims=True)).min() > 0.01, "none is of no use"


def test_the_model_of_latents_tells_stories_as_well_whatever_it_keeps() -> None:
    latents = greedy_stories(ModelSpec("demo-mla"), SOME)
    assert min(shares(latents)) >= 0.9
    heads = greedy_stories(ModelSpec("demo-mla", kv_heads="all"), SOME)
    assert [told.completion.text for told in heads] == [told.completion.text for told in latents]


def test_the_hybrid_tells_stories_as_well() -> None:
    assert min(shares(greedy_stories(ModelSpec("demo-hybrid"), SOME))) >= 0.9


def answered(prompts: list[Prompt]) -> list[str]:
    """Greedy, all in one batch."""
    params = SamplingParams(max_tokens=2 * LIMIT, temperature=0)
    with Engine(ModelSpec("demo"), EngineConfig(max_running=len(prompts), kv_memory=1 << 28), threads=1) as engine:
        streams = engine.submit_many([Submission(prompt, params) for prompt in prompts])
        return [stream.result(timeout=100).text for stream in streams]


def told_by_the_grammar(moral: bool | None) -> list[tuple[str, grammar.Story]]:
    """Asks for held-out pairs of nouns, and their stories."""
    rng = random.Random(1)
    pairs = grammar.held_out_pairs(COPIES, seed=5)
    return [(grammar.ask(a, b), grammar.story(a, b, "normal", rng, moral)) for a, b in pairs]


def test_most_stories_are_told_again_word_for_word() -> None:
    told = told_by_the_grammar(None)
    answers = answered([exercises.turns(asked, story.text, "Tell it again.") for asked, story in told])
    same = sum(answer == story.text for answer, (_, story) in zip(answers, told))
    assert same >= 0.75 * COPIES


def test_nearly_every_story_can_be_had_as_json_and_says_what_the_story_says() -> None:
    told = told_by_the_grammar(True)
    answers = answered([exercises.turns(asked, story.text, exercises.AS_JSON) for asked, story in told])
    found = []
    for answer in answers:
        try:
            found.append(json.loads(answer))
        except ValueError:
            found.append({})
    assert sum(set(each) == {"hero", "place", "moral"} for each in found) >= 0.95 * COPIES
    assert sum(each.get("moral") == story.moral for each, (_, story) in zip(found, told)) >= 0.75 * COPIES


def test_examples_are_followed() -> None:
    asked = [[dict(m) for m in arrival.prompt] for arrival in load_workload("few-shot", count=COPIES).arrivals]
    answers = answered(asked)
    same = sum(answer.endswith(f" walked to {m[-1]['content'].split(', ')[1]}.") for answer, m in zip(answers, asked))
    assert same >= 0.8 * COPIES


def test_whatever_it_is_given_it_goes_on_with_words_of_its_stories() -> None:
    given: list[Prompt] = [
        "Once upon a time", "Hello", "What is 2 + 2?", "fox owl kite lantern", "The committee met on Monday and",
        "a b c d e f g", "In the deep forest, a small owl", "Paged attention keeps K and V. ", "42", "One day",
    ]  # fmt: skip
    answers = answered([*given, *(exercises.turns(str(text)) for text in given)])
    known, said = grammar.vocabulary(), [grammar.words(answer) for answer in answers]
    for words in said:
        assert len(words) > 4
        assert not any(len({*words[i : i + 3]}) == 1 for i in range(len(words) - 2)), f"a word again and again: {words}"
    assert sum(word in known for words in said for word in words) >= 0.95 * sum(map(len, said))


def test_the_stories_differ(stories: list[Told]) -> None:
    assert len({told.completion.text for told in stories}) >= 0.95 * PROMPTS


def test_the_pairs_were_held_out_of_training() -> None:
    pairs = grammar.held_out_pairs(PROMPTS)
    assert len(set(pairs)) == PROMPTS
    assert all(grammar.held_out(a, b) and grammar.held_out(b, a) for a, b in pairs)


def test_the_demo_and_its_draft_have_the_promised_sizes_and_one_tokenizer() -> None:
    demo, draft = inspect_model("demo"), inspect_model("demo-draft")
    assert 4_000_000 <= demo.parameters <= 8_000_000
    assert draft.parameters <= 1_000_000
    assert demo.vocabulary == draft.vocabulary <= 4096
    assert demo.dtype == draft.dtype == "bfloat16"
    assert demo.kv_heads < demo.heads
    assert demo.head_dim >= 32
    assert (demo.folder / "tokenizer.json").read_bytes() == (draft.folder / "tokenizer.json").read_bytes()
    config = demo.folder / "config.json"
    assert '"intermediate_size": 768' in config.read_text()
    for width in (demo.hidden, 768, demo.kv_heads * demo.head_dim):
        assert width % 128 == 0, "so that it can be quantized"
    models = resources.path("models")
    assert sum(file.stat().st_size for file in models.rglob("*") if file.is_file()) < 55_000_000


def test_the_mixture_has_eight_experts_of_which_a_token_asks_two_and_the_demos_tokenizer() -> None:
    demo, mixture = inspect_model("demo"), inspect_model("demo-moe")
    assert 5_000_000 <= mixture.parameters <= 8_000_000
    assert mixture.experts > mixture.parameters / 2
    assert (mixture.layers, mixture.hidden, mixture.kv_heads) == (demo.layers, demo.hidden, demo.kv_heads)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (mixture.folder / name).read_bytes() == (demo.folder / name).read_bytes()


def test_the_model_of_latents_is_the_demo_but_for_what_it_keeps() -> None:
    demo, latents = inspect_model("demo"), inspect_model("demo-mla")
    assert (latents.layers, latents.hidden, latents.mlp, latents.experts) == (demo.layers, demo.hidden, demo.mlp, 0)
    assert (latents.latent, latents.kv_token_bytes("float32")) == (True, 6 * 80 * 4)
    assert demo.kv_token_bytes("float32") == 3.2 * latents.kv_token_bytes("float32")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (latents.folder / name).read_bytes() == (demo.folder / name).read_bytes()


def test_the_hybrid_is_the_demo_but_for_what_its_layers_keep() -> None:
    demo, hybrid = inspect_model("demo"), inspect_model("demo-hybrid")
    assert (hybrid.layers, hybrid.hidden, hybrid.mlp, hybrid.experts) == (demo.layers, demo.hidden, demo.mlp, 0)
    assert (hybrid.states.layers, hybrid.kv_layers) == (4, 2)
    assert demo.kv_token_bytes("float32") == 3 * hybrid.kv_token_bytes("float32")
    assert hybrid.states.bytes(4) == 4 * 4 * (8 * 32 * 32 + 4 * 512)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (hybrid.folder / name).read_bytes() == (demo.folder / name).read_bytes()


def test_the_awq_checkpoint_is_the_demo_in_fewer_bits() -> None:
    demo, awq = inspect_model("demo"), inspect_model(ModelSpec("demo", quantization="awq"))
    assert awq.quantized is not None
    assert (awq.quantized.method, awq.parameters) == ("awq", demo.parameters)
    assert awq.linears == demo.linears
    assert awq.weight_bytes < 0.4 * demo.weight_bytes
    assert demo.folder is not None
    assert awq.folder is not None
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (awq.folder / name).read_bytes() == (demo.folder / name).read_bytes()


def test_the_draft_loads_and_speaks() -> None:
    with Engine(ModelSpec("demo-draft"), EngineConfig(max_running=2), threads=1) as engine:
        prompt = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
        completion = engine.submit(prompt, SamplingParams(max_tokens=20, temperature=0)).result(timeout=30)
    assert len(grammar.words(completion.text)) >= 8
