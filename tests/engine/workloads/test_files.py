"""A person's own workloads: recipes, lines of text, JSON lines and ShareGPT, good and bad."""

import json
import os
import re
import time
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pytest

from engine import InvalidInput, SamplingParams, Workload, load_workload
from engine.workloads.texts import text_of
from engine.workloads.tokens import counter_for

FIXED = SamplingParams(max_tokens=9, temperature=0)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# Recipes.

GOOD = {"count": 3, "prompt_tokens": 20, "output_tokens": 8}


def write_recipe(folder: Path, top: str = "", **group: Any) -> Path:
    """A value that is a table is written inline."""

    def toml(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
        return json.dumps(value)

    lines = [f"{key} = {toml(value)}" for key, value in (GOOD | group).items() if value is not None]
    path = folder / "mine.toml"
    path.write_text("\n".join([top, "[[requests]]", *lines]))
    return path


def test_a_recipe_with_everything_left_out_is_all_at_once(tmp_path: Path) -> None:
    workload = load_workload(write_recipe(tmp_path))
    assert workload.name == "mine"
    assert [a.time for a in workload.arrivals] == [0, 0, 0]
    assert workload.suggested.lanes == ()
    assert workload.concurrency is None


def test_a_recipe_may_say_everything(tmp_path: Path) -> None:
    top = 'name = "n"\ntitle = "T"\ndescription = "D."\nseed = 3\nconcurrency = 2\n'
    top += '[race]\nkv_tokens = 100\nlanes = ["static:2"]\n'
    path = write_recipe(tmp_path, top, arrivals="constant", rate=2, start=1, temperature=0.5, chat=False, label="x")
    workload = load_workload(str(path))
    assert (workload.name, workload.title, workload.description, workload.concurrency) == ("n", "T", "D.", 2)
    assert (workload.suggested.kv_tokens, workload.suggested.lanes) == (100, ("static:2",))
    assert [a.time for a in workload.arrivals] == pytest.approx([1, 1.5, 2])
    assert {a.label for a in workload.arrivals} == {"x"}
    assert {a.params.temperature for a in workload.arrivals} == {0.5}
    assert all(isinstance(a.prompt, str) for a in workload.arrivals)


@pytest.mark.parametrize(
    ("top", "group", "message"),
    [
        ("sed = 1", {}, "unknown key 'sed'; known are name, title, description, seed"),
        ("seed = 1.5", {}, "seed=1.5: must be a whole number"),
        ("title = 3", {}, "title=3: must be text"),
        ("concurrency = 0", {}, "concurrency=0: must be a whole number from 1"),
        ("race = 3", {}, "race=3: must be a table"),
        ('[race]\nlanes = "static"', {}, "race.lanes='static': must be a list such as"),
        ("[race]\nkv = 3", {}, "race: unknown key 'kv'; known are kv_tokens, lanes"),
        ("[race]\nkv_tokens = 0", {}, "race.kv_tokens=0: must be a whole number from 1"),
        ("", {"rats": 3}, "requests[0]: unknown key 'rats'; known are count, label, arrivals, rate"),
        ("", {"count": None}, "requests[0]: has no count; give one"),
        ("", {"count": -1}, "requests[0].count=-1: must be a whole number from 1"),
        ("", {"rate": -2, "arrivals": "poisson"}, "requests[0].rate=-2: must be above 0 requests a second"),
        ("", {"arrivals": "sometimes"}, "requests[0].arrivals='sometimes': must be one of at once"),
        ("", {"arrivals": ["poisson"]}, "requests[0].arrivals=['poisson']: must be one of at once"),
        ("", {"prompt_tokens": {"uniform": {"mean": 3}}}, "requests[0].prompt_tokens.spread=None"),
        ("", {"temperature": -1}, "requests[0].temperature=-1: must be between 0 (greedy) and 100"),
        ("", {"chat": 1}, "requests[0].chat=1: must be true or false"),
        ("", {"label": 1}, "requests[0].label=1: must be text"),
        ("", {"turns": 2}, "requests[0].pause: conversations of turns need it"),
        ("", {"pause": 2}, "requests[0].pause: give it with turns above 1"),
        ("", {"turns": 2, "pause": 1}, "requests[0].answer_tokens: conversations of turns need it"),
        ("", {"examples": 3}, "requests[0].prompt_tokens: leave it out; again, examples and turns each stand alone"),
        ("", {"again": True, "prompt_tokens": None}, "requests[0].output_tokens: leave it out"),
        ("", {"again": 1}, "requests[0].again=1: must be true or false"),
        ("", {"examples": 3, "prompt_tokens": None, "turns": 2}, "requests[0].turns: leave it out"),
        ("", {"examples": 1001}, "requests[0].examples=1001: must be"),
        ("", {"examples": 900, "prompt_tokens": None}, "lower prompt_tokens, output_tokens, turns or examples"),
        ("", {"prompt_tokens": 1000, "output_tokens": 100}, "exceed the model's context of 1,024; lower prompt_tokens"),
        ("count = ", {}, "not TOML: "),
    ],
)
def test_a_recipe_that_is_wrong_is_named_with_its_key_and_the_remedy(
    tmp_path: Path, top: str, group: dict[str, Any], message: str
) -> None:
    path = write_recipe(tmp_path, top, **group)
    with pytest.raises(InvalidInput) as caught:
        load_workload(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_recipe_without_requests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('title = "T"')
    with pytest.raises(InvalidInput, match=r"has no requests; write a table \[\[requests\]\]"):
        load_workload(path)
    path.write_text("requests = [3]")
    with pytest.raises(InvalidInput, match=r"requests\[0\]=3: must be a table"):
        load_workload(path)


def test_a_recipe_that_is_not_there_or_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read the workload .*none.toml: No such file"):
        load_workload(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes("title = 'Bär'".encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"latin.toml: not TOML: 'utf-8' codec"):
        load_workload(tmp_path / "latin.toml")


def test_a_recipe_says_itself_how_it_samples(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="params: the workload mine says itself how it samples"):
        load_workload(write_recipe(tmp_path), params=FIXED)


# Lines of text.


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("a fox\n\nan owl\na hen\n")
    return path


def test_a_line_of_text_is_a_chat_where_the_model_chats(lines: Path) -> None:
    workload = load_workload(lines, params=FIXED)
    assert workload.name == "prompts.txt"
    assert [a.prompt for a in workload.arrivals] == [chat("a fox"), chat("an owl"), chat("a hen")]
    assert {(a.time, a.params) for a in workload.arrivals} == {(0.0, FIXED)}
    assert [a.prompt for a in load_workload(lines, chat=False).arrivals] == ["a fox", "an owl", "a hen"]


def test_a_files_prompts_begin_again_when_more_are_wanted(lines: Path) -> None:
    def prompts(count: int) -> list[Any]:
        return [a.prompt for a in load_workload(lines, count=count, chat=False).arrivals]

    assert prompts(2) == ["a fox", "an owl"]
    assert prompts(5) == ["a fox", "an owl", "a hen", "a fox", "an owl"]


def test_a_files_prompts_come_as_they_are_told_to(lines: Path) -> None:
    workload = load_workload(lines, arrivals="constant", rate=4, concurrency=2)
    assert [a.time for a in workload.arrivals] == pytest.approx([0, 0.25, 0.5])
    assert workload.concurrency == 2
    assert load_workload(lines, rate=4, seed=1) == load_workload(lines, rate=4, seed=1)
    assert load_workload(lines, rate=4, seed=1) != load_workload(lines, rate=4, seed=2)


def test_a_line_longer_than_the_context_is_named(lines: Path) -> None:
    lines.write_text("a fox\n" + "a fox " * 600)
    with pytest.raises(
        InvalidInput, match=r"prompts.txt, line 2: prompt of 1,20\d tokens: the model has a context of 1"
    ):
        load_workload(lines)


def test_a_text_file_that_is_empty_or_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InvalidInput, match=r"empty.txt has no prompts; write one a line"):
        load_workload(tmp_path / "empty.txt")
    with pytest.raises(InvalidInput, match="cannot read the prompt file"):
        load_workload(tmp_path / "none.txt")


# JSON lines.


def jsonl(folder: Path, *entries: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(e if isinstance(e, str) else json.dumps(e) for e in entries), encoding="utf-8")
    return path


def test_json_lines_may_hold_every_kind_of_prompt(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        {"prompt": "a fox", "max_tokens": 5, "temperature": 0.5, "stop": ["x"], "n": 2},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "label": "b"},
        "",
        {"text": "Once"},
        {"token_ids": [5, 6, 7]},
        {"prompt": [5, 6]},
        {"prompt": chat("hi")},
    )
    workload = load_workload(path, params=FIXED)
    assert [a.prompt for a in workload.arrivals] == [
        chat("a fox"),
        [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "Once",
        [5, 6, 7],
        [5, 6],
        chat("hi"),
    ]
    assert workload.arrivals[0].params == FIXED.with_(max_tokens=5, temperature=0.5, stop=("x",), n=2)
    assert workload.arrivals[1].params == FIXED
    assert workload.arrivals[1].label == "b"


def test_json_lines_may_say_when_they_come_unless_that_is_told(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"text": "c", "time": 2}, {"text": "a"}, {"text": "b", "time": 0.5})
    assert [(a.prompt, a.time) for a in load_workload(path).arrivals] == [("a", 0.0), ("b", 0.5), ("c", 2.0)]
    told = load_workload(path, arrivals="constant", rate=10)
    assert [(a.prompt, a.time) for a in told.arrivals] == [("c", 0.0), ("a", 0.1), ("b", 0.2)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{'prompt': 1}", "not JSON: "),
        ('"a fox"', "is no object; write {"),
        ({"max_tokens": 3}, "has no prompt; give one of prompt, messages, text, token_ids"),
        ({"prompt": "a", "text": "b"}, "has prompt and text; give one of"),
        ({"prompt": "a", "max_token": 3}, "unknown key 'max_token'; known are prompt, messages"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens=0: must be a whole number of at least 1"),
        ({"prompt": "a", "temperature": "hot"}, "temperature='hot': must be between 0"),
        ({"prompt": "a", "time": -1}, "time=-1.0: must be a number of seconds of at least 0"),
        ({"prompt": "a", "time": "soon"}, "time='soon': must be a number of seconds"),
        ({"prompt": "a", "label": 3}, "label=3: must be text"),
        ({"prompt": " "}, "prompt=' ': must be text, messages or token ids, and not empty"),
        ({"prompt": [1, "a"]}, "prompt=[1, 'a']: must be text, messages or token ids"),
        ({"text": ["a"]}, "text=['a']: must be text that is not empty"),
        ({"messages": "hi"}, "messages='hi': must be messages such as"),
        ({"messages": [{"role": "user"}]}, "must be messages such as"),
        ({"token_ids": []}, "token_ids=[]: must be whole numbers"),
        ({"token_ids": [-1]}, "token_ids=[-1]: must be whole numbers"),
        ({"token_ids": [7] * 1024}, "prompt of 1,024 tokens: the model has a context of 1,024; shorten it"),
    ],
)
def test_a_json_line_that_is_wrong_is_named_with_its_number(tmp_path: Path, bad: Any, message: str) -> None:
    path = jsonl(tmp_path, {"prompt": "a fox"}, "", bad)
    with pytest.raises(InvalidInput) as caught:
        load_workload(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert message in str(caught.value)


def test_a_file_of_json_lines_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'has no prompts; write an object such as {"prompt": "…"} a line'):
        load_workload(jsonl(tmp_path))


# ShareGPT.


def sharegpt(folder: Path, *conversations: Any) -> Path:
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(conversations))
    return path


def conversation(*turns: str) -> dict[str, Any]:
    return {
        "id": "x",
        "conversations": [{"from": "gpt" if i % 2 else "human", "value": t} for i, t in enumerate(turns)],
    }


ANSWER = "The fox found a kite near the river."  # 9 tokens, as ASK has


def ask(i: int) -> str:
    return f"Tell me a story about a fox and {'the ' * i}kite."


def test_a_conversations_first_turn_is_the_prompt_and_the_second_fixes_the_output(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, conversation(ask(1), ANSWER, "And then?", "Nothing."))
    (arrival,) = load_workload(path, params=FIXED).arrivals
    assert arrival.prompt == chat(ask(1))
    assert arrival.params == FIXED.with_(max_tokens=9, ignore_eos=True)


def test_conversations_by_the_rules_are_dropped_and_counted(tmp_path: Path) -> None:
    good = [conversation(ask(i), ANSWER) for i in range(4)]
    bad = [
        conversation(ask(1)),
        conversation("Why?", "no"),
        conversation("No.", ANSWER),
        conversation(ask(1030), ANSWER),
        conversation(ask(1000), "the " * 1100),
        conversation(ask(900), "the " * 200),
    ]
    workload = load_workload(sharegpt(tmp_path, *good, *bad), chat=True)
    assert sorted(str(a.prompt) for a in workload.arrivals) == sorted(str(chat(ask(i))) for i in range(4))
    assert workload.description.startswith("6 conversations dropped: ")
    for why in (
        "1 of one turn",
        "2 under 4 tokens",
        "1 with prompts over 1,024 tokens",
        "1 over 2,048 tokens in all",
        "1 over the model's context of 1,024",
    ):
        assert why in workload.description


def test_some_conversations_are_a_choice_by_the_seed(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, *(conversation(ask(i), ANSWER) for i in range(30)))

    def chosen(seed: int) -> Workload:
        return load_workload(path, count=5, seed=seed)

    assert len(chosen(1)) == 5
    assert chosen(1) == chosen(1) != chosen(2)
    assert load_workload(path).description == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{]", "not JSON: "),
        ('{"prompt": "a"}', "not ShareGPT's JSON: it is no list"),
        ('[{"id": 3}]', "entry 1: has no conversations; write "),
        ("[3]", "entry 1: has no conversations; write "),
        ('[{"conversations": [{"from": "human"}, {}]}]', "entry 1: the turn {'from': 'human'} has no value"),
        ("[]", "has no conversation to use (it is empty); choose another file"),
        ('[{"conversations": []}]', "has no conversation to use (1 of one turn)"),
    ],
)
def test_json_that_is_not_sharegpts_is_named_with_the_entry(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load_workload(path)
    assert re.match(re.escape(str(path)), str(caught.value))
    assert message in str(caught.value)


# Files and sizes without an end.


@pytest.mark.timeout(30)
@pytest.mark.parametrize("ending", ["toml", "txt", "jsonl", "json"])
def test_a_pipe_or_device_is_refused_and_not_read(tmp_path: Path, ending: str) -> None:
    os.mkfifo(tmp_path / f"pipe.{ending}")
    (tmp_path / f"zeros.{ending}").symlink_to("/dev/zero")
    for name in (f"pipe.{ending}", f"zeros.{ending}"):
        with pytest.raises(InvalidInput, match=rf"^cannot read .*{name}: it is a pipe or a device, not a file"):
            load_workload(tmp_path / name)


def test_a_recipe_may_begin_with_the_mark_of_utf8(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load_workload(path)) == 3


def test_a_line_of_megabytes_is_refused_without_the_memory_for_its_tokens(tmp_path: Path) -> None:
    text, long, share = tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "c.json"
    text.write_text("ok\n" + "fox and kite " * 400_000)
    long.write_text(json.dumps({"prompt": "fox and kite " * 1_600_000}))
    share.write_text(json.dumps([conversation("fox and kite " * 1_600_000, ANSWER)]))
    before = getrusage(RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidInput, match=r"a.txt, line 2: prompt of at least [\d,]+ tokens: the model has a context"):
        load_workload(text)
    with pytest.raises(InvalidInput, match=r"b.jsonl, line 1: has 20,800,014 bytes, over 16,777,216; shorten it"):
        load_workload(long)
    with pytest.raises(InvalidInput, match=r"1 with prompts over 1,024 tokens"):
        load_workload(share)
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 300 << 10


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "group",
    [
        {"prompt_tokens": 10_000_000},
        {"system_tokens": 10_000_000},
        {"turns": 2, "pause": 1, "answer_tokens": 10_000_000},
        {"prompt_tokens": {"lognormal": {"median": 9_000_000, "sigma": 1.0, "max": 10_000_000}}},
    ],
)
def test_sizes_that_no_context_holds_are_refused_before_they_are_written(tmp_path: Path, group: dict[str, Any]) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidInput, match=r"exceed the model's context of 1,024; lower prompt_tokens"):
        load_workload(write_recipe(tmp_path, **group))
    assert time.process_time() - begun < 5


def test_turns_count_towards_the_most_requests(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, count=60_000, turns=2, pause=1, answer_tokens=2, prompt_tokens=2, output_tokens=2)
    with pytest.raises(InvalidInput, match=r"requests=120000: are at most 100,000 in all, each turn counting"):
        load_workload(path)


@pytest.mark.timeout(60)
def test_a_long_text_is_exact_and_written_in_seconds() -> None:
    counter, begun = counter_for(), time.process_time()
    assert counter.count(text_of(30_000, counter, Random(1), "Once")) == 30_000
    assert time.process_time() - begun < 5


# The model.


def test_a_models_own_tokenizer_is_used(demo_copy: Path) -> None:
    assert load_workload("burst", model_folder=demo_copy) == load_workload("burst")
    (demo_copy / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"tokenizer.json cannot be read: .*fetch the model again"):
        load_workload("burst", model_folder=demo_copy)
    (demo_copy / "tokenizer.json").unlink()
    assert load_workload("burst", model_folder=demo_copy).estimated


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is no model: it has no config.json"):
        load_workload("burst", model_folder=tmp_path)
