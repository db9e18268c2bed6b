"""Workloads whose answers are held to a grammar."""

import json
import re
from pathlib import Path

import pytest

from engine import InvalidInput, load_workload
from engine.workloads import SCHEMAS, load_schema

RECIPE = "[[requests]]\ncount = 2\nprompt_tokens = 11\noutput_tokens = 8\n{line}\n"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('regex = "[a-z]+"', "regex", "[a-z]+"),
        ('choices = ["yes", "no"]', "choices", ("yes", "no")),
        ('json_schema = { type = "integer" }', "json_schema", '{"type": "integer"}'),
        ('json_schema = "story"', "json_schema", json.dumps(load_schema("story"), ensure_ascii=False)),
    ],
)
def test_a_recipe_says_what_its_answers_are_held_to(line: str, name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(line=line))
    for arrival in load_workload(path).arrivals:
        assert getattr(arrival.params, name) == value
        assert not arrival.params.ignore_eos


@pytest.mark.parametrize("line", ['json_schema = "{"', 'regex = "a"\nchoices = ["b"]', "choices = 3"])
def test_a_recipe_with_a_grammar_that_cannot_be_is_refused_by_its_place(line: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(line=line))
    with pytest.raises(InvalidInput, match=re.escape(f"{path}: requests[0].")):
        load_workload(path)


def test_a_schema_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "age.json"
    for written, told in (
        ("{", "not JSON"),
        ("[1]", "is an object"),
        ("[" * 100_000, "not JSON: it is nested too deep"),
    ):
        path.write_text(written)
        with pytest.raises(InvalidInput, match=re.escape(str(path)) + ".*" + told):
            load_schema(path)
    path.write_text('{"type": "integer"}')
    assert load_schema(path) == {"type": "integer"}
    with pytest.raises(InvalidInput, match=f"give a file, or one of {', '.join(SCHEMAS)}"):
        load_schema(tmp_path / "none.json")


def test_a_line_of_a_file_says_what_its_answer_is_held_to(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Hi", "choices": ["a", "b"], "logit_bias": {"7": 2}}\n')
    (arrival,) = load_workload(path).arrivals
    assert arrival.params.choices == ("a", "b")
    assert arrival.params.logit_bias == ((7, 2.0),)
