"""Penalties, bias, banned words and grammars through the engine: greedy tokens are those of transformers' generate with
the same rules, for many decoder types, one step behind and not, batched and preempted."""

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission, measure
from engine.core import EngineProcess
from engine.decoding.constraints import allowed_bits, masks
from engine.decoding.detokenizer import ByteLevelVocabulary
from engine.decoding.token_rules import banned_sequences
from engine.trace import FinishReason, Step, load_trace, save_trace
from tests.engine.core.test_recovery import memory_for
from tests.engine.decoding.tokenizer_kinds import tokenizer
from tests.engine.rules_reference import Rules
from tests.engine.tiny_models import VOCABULARY

DEMO, EOS, NEW = tokenizer("demo"), 2, 12
WORDS = ByteLevelVocabulary(DEMO)
ARCHITECTURES = ["llama", "qwen3", "mistral", "gemma2", "phi3", "mixtral", "gpt-oss", "gpt2"]
GREEDY = SamplingParams(max_tokens=NEW, temperature=0)
WAYS: list[dict[str, Any]] = [
    {"regex": "([a-z]{2,8} ?){3,}"},
    {"regex": "[0-9]+[a-z]?,[A-Z ]+"},
    {"frequency_penalty": 1.5, "presence_penalty": 2.0, "repetition_penalty": 1.3},
    {"min_tokens": 5, "logit_bias": {EOS: 100.0}},
    {"bad_words": ["a", "e", "the", "tree", "house", "old bridge"], "logit_bias": {300: 2.5}},
    {},
]
STORY_SCHEMA = {
    "type": "object",
    "properties": {"hero": {"type": "string", "minLength": 3, "maxLength": 24}, "age": {"type": "integer"}},
    "required": ["hero", "age"],
    "additionalProperties": False,
}
CHAT: Any = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]


def prompts() -> list[list[int]]:
    random = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (3, 17, 1, 21, 9, 26)]


class Processor(LogitsProcessor):
    """The reference's rules in transformers' generate."""

    def __init__(self, rules: Rules, prompt: int) -> None:
        self._rules, self._prompt = rules, prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        ids = input_ids[0].tolist()
        return self._rules(ids[: self._prompt], ids[self._prompt :], scores[0])[None]


def encode(text: str) -> list[int]:
    found: list[int] = DEMO(text, add_special_tokens=False).input_ids
    return found


def expected_of(module: PreTrainedModel, prompt: list[int], params: SamplingParams) -> list[int]:
    rules = Rules(params, EOS, banned_sequences(params.bad_words, encode), WORDS)
    out = module.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        logits_processor=LogitsProcessorList([Processor(rules, len(prompt))]),
        max_new_tokens=params.max_tokens,
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=0,
    )
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


@pytest.mark.parametrize(("name", "depth"), [(name, place % 2) for place, name in enumerate(ARCHITECTURES)])
def test_greedy_tokens_under_rules_are_those_of_transformers(
    name: str, depth: int, tiny_folder: Callable[[str], Path]
) -> None:
    folder = tiny_folder(name)
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ways = [GREEDY.with_(**way) for way in WAYS]
    expected = [expected_of(module, *each) for each in zip(prompts(), ways)]
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), threads=1) as engine:
        memory = 11 * 4 * engine.card.kv_token_bytes
        engine.begin(EngineConfig(max_running=5, token_budget=32, block_size=4, kv_memory=memory, depth=depth))
        streams = engine.submit_many([Submission(*each) for each in zip(prompts(), ways)])
        for i, completion in enumerate(stream.result(timeout=60) for stream in streams):
            said = list(completion.token_ids)
            rest = expected[i][len(said) :]
            assert said == expected[i][: len(said)], WAYS[i]
            # A grammar that cannot go on ends its text without the token that would say so.
            assert rest == [] or (rest == [EOS] and ways[i].constrained)
            stopped = expected[i][-1] == EOS or len(expected[i]) < NEW
            assert completion.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        assert measure(engine.trace).preemptions > 0
    assert len({token for each in expected for token in each}) > 20
    assert expected[3][5] == EOS


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "recompute", "chunked"])
def test_every_mode_holds_to_the_grammar(mode: str, demo: Engine) -> None:
    demo.begin(EngineConfig(mode, max_running=3, token_budget=64))
    ways = [
        SamplingParams(max_tokens=60, temperature=0.9, seed=3, json_schema=STORY_SCHEMA),  # type: ignore[arg-type]
        SamplingParams(max_tokens=8, temperature=0, regex="[A-Z][a-z]{1,3}!"),
        SamplingParams(max_tokens=8, temperature=1.5, choices=("yes", "no")),
    ]
    story, short, answer = [s.result(timeout=30) for s in demo.submit_many([Submission(CHAT, way) for way in ways])]
    found = json.loads(story.text)
    assert 3 <= len(found["hero"]) <= 24
    assert isinstance(found["age"], int)
    assert list(found) == ["hero", "age"]
    assert re.fullmatch("[A-Z][a-z]{1,3}!", short.text)
    assert answer.text in ("yes", "no")
    assert {c.finish_reason for c in (story, short, answer)} == {FinishReason.STOP}


def test_samples_of_a_prompt_each_follow_the_grammar_and_its_preempted_ones_say_the_same(demo: Engine) -> None:
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=5, n=6, json_schema=STORY_SCHEMA)  # type: ignore[arg-type]
    said = []
    little = 14 * 16 * demo.card.kv_token_bytes
    for memory, preemption in ((None, "recompute"), (little, "recompute"), (little, "swap")):
        for depth in (0, 1):
            config = EngineConfig(max_running=6, token_budget=64, kv_memory=memory, depth=depth, preemption=preemption)
            demo.begin(config)
            said.append([c.text for c in demo.submit(CHAT, params).results(timeout=30)])
            assert (measure(demo.trace).preemptions > 0) == (memory is not None)
    assert all(each == said[0] for each in said)
    assert all(json.loads(text)["hero"] for text in said[0])
    assert len(set(said[0])) > 1


def test_rules_hold_beside_speculation_which_leaves_such_rows_alone(demo: Engine) -> None:
    copying = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
    ways: list[dict[str, Any]] = [
        {"json_schema": STORY_SCHEMA}, {"frequency_penalty": 1.0, "presence_penalty": 0.5},
        {"bad_words": ["fox", "kite"]},
        {"min_tokens": 6, "logit_bias": {EOS: 30.0}},
    ]  # fmt: skip
    ruled = [SamplingParams(max_tokens=24, temperature=0.7, seed=i, **way) for i, way in enumerate(ways)]
    sent = [Submission(list(range(40, 60)) * 4, copying), *(Submission(CHAT, params) for params in ruled)]
    said = []
    for speculation in (None, "ngram"):
        demo.begin(EngineConfig(max_running=6, speculation=speculation, speculated=3))
        streams = demo.submit_many(sent)
        said.append([stream.result(timeout=30).token_ids for stream in streams])
    assert said[0] == said[1]
    verified: set[int] = set()
    for step in demo.trace.steps:
        verified |= set(step.request[: len(step.drafted)][step.drafted > 0].tolist())
    assert verified == {streams[0].request}


def test_others_keep_their_depth_and_their_tokens_beside_a_constrained_request(demo: Engine) -> None:
    free = SamplingParams(max_tokens=30, temperature=0.8, seed=1, ignore_eos=True)
    alone = demo.submit(CHAT, free).result(timeout=30).token_ids
    demo.begin(EngineConfig(max_running=4, depth=1))
    longest = demo.submit(CHAT, free)
    held = demo.submit(CHAT, SamplingParams(max_tokens=12, regex="[a-z]+", temperature=0))
    assert longest.result(timeout=30).token_ids == alone
    assert re.fullmatch("[a-z]+", held.result(timeout=30).text)
    started = {r.step: r.time for r in demo.trace.records if type(r).__name__ == "StepStarted"}
    steps = [s for s in demo.trace.steps if s.rows]
    ends = {s.step: s.ended for s in steps}
    with_held = [s.step for s in steps if held.request in s.request.tolist()]
    without = [s.step for s in steps if held.request not in s.request.tolist()]
    assert all(started[i + 1] >= ends[i] for i in with_held if i + 1 in started), "read before the next is planned"
    assert any(started[i + 1] < ends[i] for i in without if i + 1 in started), "one step behind again"


def test_the_records_tell_what_was_allowed_and_what_would_rather_have_been_said(demo: Engine, tmp_path: Path) -> None:
    demo.begin(EngineConfig(max_running=4))
    params = SamplingParams(max_tokens=20, temperature=0, regex="[0-9]{3}, [a-z]+", logprobs=1)
    free = demo.submit(CHAT, SamplingParams(max_tokens=9, temperature=0))
    completion = demo.submit(CHAT, params).result(timeout=30)
    free.result(timeout=30)
    rules, said = Rules(params, EOS, (), WORDS), list[int]()
    save_trace(demo.trace, tmp_path / "kept.bsrun")
    kept = load_trace(tmp_path / "kept.bsrun")
    for step, again in zip(demo.trace.steps, kept.steps, strict=True):
        assert again.rather_text == step.rather_text
        assert again.allowed.tolist() == step.allowed.tolist()
        owners = step.request[step.token_row].tolist()
        held = [i for i, owner in enumerate(owners) if owner == completion.request]
        assert step.allowed_token_index.tolist() == held
        for place, count in zip(held, step.allowed.tolist()):
            allowed = rules.allowed(said, VOCABULARY)
            assert count in (int(allowed.sum()), 1)
            top = int(step.alt_token[step.alt_token_index == place][0])
            rather = np_index(step, place)
            if rather is None:
                assert bool(allowed[top])
                assert top == step.token[place]
            else:
                assert step.rather_token[rather] == top
                assert step.rather_text[rather] == step.alt_text[step.alt_token_index.tolist().index(place)]
                likeliest = float(step.alt_logprob[step.alt_token_index == place][0])
                assert float(step.rather_logprob[rather]) == pytest.approx(likeliest, abs=1e-4)
            said.append(int(step.token[place]))
    assert said == list(completion.token_ids)
    assert sum(len(step.rather_token) for step in demo.trace.steps) > 3


def np_index(step: Step, place: int) -> int | None:
    places = step.rather_token_index.tolist()
    return places.index(place) if place in places else None


def test_a_stop_string_waits_for_the_least_number_of_tokens(demo: Engine) -> None:
    plain = demo.submit(CHAT, SamplingParams(max_tokens=40, temperature=0)).result(timeout=30)
    assert plain.text.count(" ") > 12
    words = [demo.submit(CHAT, SamplingParams(max_tokens=40, temperature=0, stop=" ", min_tokens=n)) for n in (0, 10)]
    first, later = (stream.result(timeout=30) for stream in words)
    assert first.text == plain.text.split(" ")[0]
    assert len(later.token_ids) == 11
    assert plain.text.startswith(later.text)
    assert later.text.count(" ") > 3


def test_a_grammar_that_gives_up_ends_its_request_and_nobody_else(large_demo: Engine) -> None:
    """What the library takes for too much is known while it runs."""
    free = large_demo.submit(CHAT, SamplingParams(max_tokens=20, temperature=0))
    (prepared,) = large_demo.prepare([Submission(CHAT, SamplingParams(max_tokens=20, temperature=0, regex="[a-z]+"))])
    (branch,) = prepared.request.branches
    assert branch.matcher is not None
    branch.matcher._machine.consume_token(0)
    stream = prepared.router.open(prepared.ticket, large_demo.cancel)
    large_demo.enqueue([prepared])
    ended = stream.result(timeout=30)
    assert ended.finish_reason is FinishReason.ERROR
    assert "doesn't satisfy the grammar" in ended.error
    assert len(free.result(timeout=30).token_ids) == 20


def test_a_step_that_fails_waits_for_its_masks_before_others_are_found(
    large_demo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the smaller steps after it are of the same matchers, and found on the engine's own thread."""
    params = SamplingParams(max_tokens=6, temperature=0, regex="[a-z ]{30}")
    sent = [Submission(prompt, params) for prompt in prompts()[:4]]

    def said() -> list[tuple[int, ...]]:
        return [stream.result(timeout=30).token_ids for stream in large_demo.submit_many(sent)]

    busy, met = threading.Lock(), list[bool]()

    def slow(*given: Any) -> Any:
        met.append(busy.locked())
        if not threading.current_thread().name.startswith("grammars"):
            return allowed_bits(*given)
        with busy:
            time.sleep(0.2)
            return allowed_bits(*given)

    large_demo.begin(EngineConfig(max_running=4))
    expected = said()
    large_demo.begin(EngineConfig(max_running=4))
    monkeypatch.setattr(masks, "APART", 3 * VOCABULARY // 32)
    monkeypatch.setattr(masks, "allowed_bits", slow)
    with memory_for(large_demo, lambda ids: ids.numel() != 4) as refused:
        assert said() == expected
    assert refused
    assert not any(met)


def test_a_grammar_that_cannot_be_is_refused_at_submit_in_this_process_and_another(demo: Engine) -> None:
    wrong = SamplingParams(json_schema={"type": "object", "uniqueItems": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no output can be held to"):
        demo.submit(CHAT, wrong)
    count = demo.submit(CHAT, SamplingParams(max_tokens=1)).request
    assert demo.submit(CHAT, SamplingParams(max_tokens=1)).request == count + 1
    with EngineProcess(ModelSpec("demo"), EngineConfig(max_running=2), threads=1) as engine:
        with pytest.raises(InvalidInput, match="no output can be held to"):
            engine.submit(CHAT, wrong)
        params = SamplingParams(max_tokens=60, json_schema=STORY_SCHEMA, logit_bias={5: 1})  # type: ignore[arg-type]
        assert "hero" in json.loads(engine.submit(CHAT, params).result(timeout=30).text)
