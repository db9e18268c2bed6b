"""The workloads that are shipped: they load, fit the demo model and have the lengths that they name."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from transformers import AutoTokenizer

import resources
from engine import Engine, EngineConfig, InvalidInput, Workload, list_workloads, load_workload
from engine.compare import parse_lane
from engine.config import MODES
from engine.workloads import Arrival, demo_workload
from engine.workloads.library import SHIPPED
from engine.workloads.schemas import load_schema

CONTEXT = 1024
TEMPLATE = 2  # tokens that the demo's chat template writes around a message
ENDS = 2  # and at both ends of a prompt


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Workload:
    return load_workload(request.param)


def sizes(arrival: Arrival, tokenizer: Any) -> tuple[list[int], int]:
    """Tokens of each message's text, and of the whole prompt as the engine encodes it."""
    messages: Any = arrival.prompt
    texts = [len(tokenizer(m["content"], add_special_tokens=False).input_ids) for m in messages]
    whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return texts, len(tokenizer(whole, add_special_tokens=False).input_ids)


def test_every_file_is_listed_once_and_says_what_it_is() -> None:
    cards = list_workloads()
    assert {card.name for card in cards} == {path.stem for path in resources.path("workloads").glob("*.toml")}
    assert [card.name for card in cards] == list(SHIPPED)
    for card in cards:
        assert card.title
        assert card.description.endswith((".", "?"))
        assert len(card.description) < 120
        assert load_workload(card.name).title == card.title


def test_a_card_counts_the_requests(shipped: Workload) -> None:
    (card,) = [card for card in list_workloads() if card.name == shipped.name]
    assert card.requests == len(shipped)
    assert (card.description, card.suggested) == (shipped.description, shipped.suggested)


def test_every_request_fits_the_demo_model_and_is_greedy_to_its_last_token(shipped: Workload, tokenizer: Any) -> None:
    assert not shipped.estimated
    for arrival in shipped.arrivals:
        texts, whole = sizes(arrival, tokenizer)
        assert whole == sum(texts) + TEMPLATE * len(texts) + ENDS
        assert whole + arrival.params.max_tokens <= CONTEXT
        assert arrival.params.temperature == 0
        assert arrival.params.ignore_eos != arrival.params.constrained


def test_a_race_is_suggested_that_can_be_run(shipped: Workload, tokenizer: Any) -> None:
    kv_tokens, lanes = shipped.suggested.kv_tokens, [parse_lane(text) for text in shipped.suggested.lanes]
    assert kv_tokens is not None
    assert 2 <= len(lanes) <= 4
    assert all(lane.config.mode in MODES for lane in lanes)
    longest = max(sizes(a, tokenizer)[1] + a.params.max_tokens for a in shipped.arrivals)
    for lane in lanes:
        if lane.config.mode == "static":
            assert lane.config.max_running * longest <= kv_tokens


def test_it_is_the_same_every_time_and_another_with_another_seed(shipped: Workload) -> None:
    assert load_workload(shipped.name) == shipped
    assert load_workload(shipped.name, seed=99) != shipped


def test_it_is_the_same_on_every_machine() -> None:
    first: Any = load_workload("burst").arrivals[0].prompt
    assert first[0]["content"] == "Tell me a story about a walrus and a quilt."
    assert [a.params.max_tokens for a in load_workload("mixed-lengths").arrivals[:6]] == [42, 58, 113, 7, 35, 17]


def test_prompts_differ_from_each_other(shipped: Workload) -> None:
    prompts = [str(a.prompt) for a in shipped.arrivals]
    assert len(set(prompts)) == len(prompts)


def test_the_burst_is_64_plain_asks_at_once(tokenizer: Any) -> None:
    workload = load_workload("burst")
    assert [a.time for a in workload.arrivals] == [0.0] * 64
    for arrival in workload.arrivals:
        (message,) = arrival.prompt
        assert isinstance(message, dict)
        assert message["content"].startswith("Tell me a story about a ")
        assert message["content"].endswith(".")
        assert sizes(arrival, tokenizer)[0] == [11]
        assert arrival.params.max_tokens == 64


def test_the_trickle_comes_at_its_rate() -> None:
    times = [a.time for a in load_workload("trickle").arrivals]
    assert len(times) == 60
    assert 59 / times[-1] == pytest.approx(6.0, rel=0.1)
    assert len({round(b - a, 6) for a, b in pairwise(times)}) == 59


def test_in_mixed_lengths_a_static_batch_waits_for_its_longest() -> None:
    outputs = [a.params.max_tokens for a in load_workload("mixed-lengths").arrivals]
    batches = [outputs[i : i + 8] for i in range(0, 64, 8)]
    assert len(outputs) == 64
    assert sum(outputs) / sum(8 * max(batch) for batch in batches) == pytest.approx(0.3, abs=0.03)
    assert max(outputs) == 400
    assert sorted(outputs)[32] == pytest.approx(40, abs=12)


def test_the_long_prompts_come_in_the_middle_of_the_short_ones(tokenizer: Any) -> None:
    arrivals = load_workload("long-prompt").arrivals
    long = [a for a in arrivals if a.label == "long"]
    short = [a for a in arrivals if a.label == "short"]
    assert len(long) == 2
    assert len(short) == 48
    assert {sizes(a, tokenizer)[0][0] for a in long} == {900}
    for arrival in long:
        assert sum(a.time < arrival.time for a in short) > 12
        assert sum(a.time > arrival.time for a in short) > 8


def test_the_shared_system_prompt_is_512_tokens_and_the_same_for_all(tokenizer: Any) -> None:
    arrivals = load_workload("shared-system-prompt").arrivals
    assert len(arrivals) == 64
    assert len({str(a.prompt[0]) for a in arrivals}) == 1
    for arrival in arrivals:
        (system, own), _ = sizes(arrival, tokenizer)
        assert system == 512
        assert 16 <= own <= 32


def test_each_chat_turn_begins_with_all_before_it(tokenizer: Any) -> None:
    arrivals = load_workload("chat-turns").arrivals
    conversations: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        first_ask: Any = arrival.prompt[1]
        conversations.setdefault(first_ask["content"], []).append(arrival)
    assert len(conversations) == 16
    for turns in conversations.values():
        assert [a.label for a in turns] == [f"turn {i}" for i in range(1, 5)]
        assert [len(a.prompt) for a in turns] == [2, 4, 6, 8]
        for before, after in pairwise(turns):
            assert after.prompt[: len(before.prompt)] == before.prompt
            assert after.time - before.time == pytest.approx(1.0)
        system, *_ = sizes(turns[0], tokenizer)[0]
        assert system == 64


def test_a_copying_prompt_ends_with_its_story_and_the_wish_for_it_again(tokenizer: Any) -> None:
    for arrival in load_workload("copying").arrivals:
        asked, told, again = (message["content"] for message in arrival.prompt if isinstance(message, dict))
        assert asked.startswith("Tell me a ")
        assert again == "Tell it again."
        assert arrival.params.max_tokens == sizes(arrival, tokenizer)[0][1] <= 300, told


def test_all_few_shot_prompts_show_the_same_examples_of_what_they_ask(tokenizer: Any) -> None:
    arrivals = load_workload("few-shot").arrivals
    shown = {str(a.prompt[:-1]) for a in arrivals}
    questions = [message["content"] for message in arrivals[0].prompt[1:-1:2] if isinstance(message, dict)]
    answers = [message["content"] for message in arrivals[0].prompt[2:-1:2] if isinstance(message, dict)]
    assert len(shown) == 1
    assert len(questions) == len(answers) == 20
    for question, answer in zip(questions, answers, strict=True):
        creature, place = question.split(", ")
        assert answer == f"The {creature} walked to {place}."
    assert all(", " in str(a.prompt[-1]) for a in arrivals)
    assert len(set(questions) | {str(a.prompt[-1]) for a in arrivals}) == 20 + len(arrivals)


def test_the_requests_of_several_applications_come_mixed_and_each_has_its_applications_instructions(
    tokenizer: Any,
) -> None:
    arrivals = load_workload("several-apps").arrivals
    instructions: dict[str, set[str]] = {}
    for arrival in arrivals:
        instructions.setdefault(arrival.label, set()).add(str(arrival.prompt[0]))
        assert sizes(arrival, tokenizer)[0][0] == 384
    assert len(instructions) == 6
    assert all(len(of_app) == 1 for of_app in instructions.values())
    assert len(set.union(*instructions.values())) == 6
    changes = sum(one.label != other.label for one, other in pairwise(arrivals))
    assert changes > len(arrivals) // 2


def test_the_engine_sees_prompts_of_just_these_lengths(demo: Engine, tokenizer: Any) -> None:
    workload = load_workload("shared-system-prompt", count=6)
    trace = demo.run(workload.with_params(workload.arrivals[0].params.with_(max_tokens=1)), EngineConfig()).result(60)
    seen = [len(view.prompt_ids) for view in trace.requests.values()]
    assert seen == [sizes(a, tokenizer)[1] for a in workload.arrivals]


# Changes at loading.


def test_what_is_given_replaces_what_the_workload_has() -> None:
    workload = load_workload("burst", count=10, rate=5.0, concurrency=3)
    assert len(workload) == 10
    assert workload.concurrency == 3
    assert workload.arrivals[0].time == 0
    assert workload.arrivals[-1].time > 0
    assert load_workload("burst", count=10, rate=5.0, burstiness=0.3) != workload
    times = [a.time for a in load_workload("trickle", arrivals="constant", rate=2).arrivals[:3]]
    assert times == pytest.approx([0, 0.5, 1.0])
    assert all(a.time == 0 for a in load_workload("trickle", arrivals="at once").arrivals)


def test_fewer_requests_are_those_that_come_first() -> None:
    every, few = load_workload("burst").arrivals, load_workload("burst", count=5).arrivals
    assert every[:5] == few


def test_a_workload_may_be_plain_text() -> None:
    assert all(isinstance(a.prompt, str) for a in load_workload("shared-system-prompt", chat=False).arrivals)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "brust"}, "no workload 'brust': give one of burst, trickle, mixed-lengths, long-prompt, "),
        ({"source": "prompts.csv"}, "or a file (.toml, .txt, .jsonl, .json)"),
        ({"source": "burst", "rate": -1}, "rate=-1: must be above 0"),
        ({"source": "burst", "count": 0}, "count=0: must be a whole number from 1"),
        ({"source": "burst", "arrivals": "often"}, "arrivals='often': must be one of"),
        ({"source": "burst", "arrivals": "poisson"}, 'rate: arrivals="poisson" needs one'),
        ({"source": "burst", "burstiness": 0.5}, 'rate: arrivals="gamma" needs one'),
        ({"source": "burst", "concurrency": 0}, "concurrency=0: must be a whole number"),
        ({"source": "burst", "seed": -1}, "seed=-1: must be a whole number"),
        ({"source": "burst", "model_folder": "/no/such"}, "no folder /no/such: check the path of the model"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_the_remedy(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_workload(**given)
    assert message in str(caught.value)


def test_lengths_are_estimated_for_a_model_that_is_not_here() -> None:
    workload = load_workload("burst", model_folder="nobody/has-this-model")
    assert workload.estimated
    assert len(workload) == 64


def test_a_chat_of_the_demo_is_the_demo_workload() -> None:
    workload = demo_workload(3)
    assert [len(a.prompt) for a in workload.arrivals] == [1, 1, 1]
    assert workload.name == "demo stories"


def test_json_stories_are_stories_to_the_shipped_schema(large_demo: Engine) -> None:
    """Whose words are those that the demo model knows: each ends by itself, and the hero is the one that was asked
    for."""
    workload = load_workload("json-stories", count=12)
    schema = load_schema("story")
    assert {json.loads(a.params.json_schema or "")["title"] for a in workload.arrivals} == {"story"}
    run = large_demo.run(workload)
    texts = [view.samples[0].text for view in run.result().requests.values()]
    assert {view.samples[0].reason for view in run.trace.requests.values()} == {"stop"}
    for text in texts:
        story = json.loads(text)
        assert list(story) == ["hero", "place", "moral"]
        assert re.fullmatch(schema["properties"]["hero"]["pattern"], story["hero"])
        assert story["place"] in schema["properties"]["place"]["enum"]
        assert story["moral"] in schema["properties"]["moral"]["enum"]
    assert len(set(texts)) > 6
