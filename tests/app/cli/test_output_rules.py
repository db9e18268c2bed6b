"""What the command line asks of answers."""

import argparse
import json
from pathlib import Path

import pytest

from app.cli.shared.options import sampling_of, sampling_options
from engine import SamplingParams
from engine.workloads import load_schema


def parsed(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    sampling_options(parser)
    return parser.parse_args(given)


def test_rules_are_what_was_given() -> None:
    given = "--frequency-penalty 0.5 --presence-penalty -1 --min-tokens 3 --logit-bias 42=-5 --logit-bias 7=2.5".split()
    params = sampling_of(parsed(*given, "--bad-word", "fox", "--bad-word", "the sea"))
    assert (params.frequency_penalty, params.presence_penalty, params.min_tokens) == (0.5, -1.0, 3)
    assert params.logit_bias == ((42, -5.0), (7, 2.5))
    assert params.bad_words == ("fox", "the sea")
    assert not params.constrained


def test_answers_are_held_to_what_was_given_whatever_their_workload_says(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text('{"type": "integer"}')
    endless = SamplingParams(ignore_eos=True)
    held = SamplingParams(regex="[a-z]+")
    for base in (endless, held, None):
        assert sampling_of(parsed("--json-schema", "story"), base).json_schema == json.dumps(load_schema("story"))
        assert sampling_of(parsed("--json-schema", str(own)), base).json_schema == '{"type": "integer"}'
        assert sampling_of(parsed("--choices", "yes, no"), base).choices == ("yes", "no")
        assert sampling_of(parsed("--regex", "a+"), base).regex == "a+"
    assert sampling_of(parsed("--min-tokens", "2"), endless).ignore_eos


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--logit-bias", "5=x"), "is not a token's id and a number"),
        (("--logit-bias", "5"), "is not a token's id and a number"),
        (("--json-schema", "nowhere.json"), "give a file, or one of story"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(given: tuple[str, ...], told: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=told):
        parsed(*given)
