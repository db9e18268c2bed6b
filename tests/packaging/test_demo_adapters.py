"""The adapters that ship, each asked for stories of pairs of nouns that no training story holds, all in one batch."""

import re
import sys
from itertools import permutations
from pathlib import Path

import pytest

from engine import Completion, Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from engine.checkpoints import EMBEDDED_ADAPTERS, inspect_adapter
from engine.trace import FinishReason

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
import stories as grammar
import voices

pytestmark = pytest.mark.slow

ASKED, LIMIT = 20, 160
ENGLISH = set("the and was with they there then that".split())
PIRATE = {"arr", "ye", "matey", "ahoy"}
GERMAN = set("der die das und ein eine war mit sie dann".split())


def asked_pairs() -> list[tuple[str, str]]:
    """Of nouns that are known in German."""
    return [pair for pair in permutations(voices.NOUNS_IN_GERMAN, 2) if grammar.held_out(*pair)][::5][:ASKED]


@pytest.fixture(scope="module")
def told() -> dict[str, list[Completion]]:
    """By adapter, "" for none."""
    asked = [
        (name, [{"role": "user", "content": grammar.ask(a, b)}])
        for name in ("", *EMBEDDED_ADAPTERS)
        for a, b in asked_pairs()
    ]
    spec, greedy = ModelSpec("demo", adapters=EMBEDDED_ADAPTERS), SamplingParams(max_tokens=LIMIT, temperature=0)
    with Engine(spec, EngineConfig(max_running=len(asked), kv_memory=1 << 28), threads=1) as engine:
        streams = engine.submit_many([Submission(prompt, greedy.with_(adapter=name)) for name, prompt in asked])
        found: dict[str, list[Completion]] = {}
        for (name, _), stream in zip(asked, streams, strict=True):
            found.setdefault(name, []).append(stream.result(100))
        return found


def words(completion: Completion) -> set[str]:
    return set(re.findall(r"[a-zäöüß']+", completion.text.lower()))


def test_they_end_by_themselves_and_differ(told: dict[str, list[Completion]]) -> None:
    for name, completions in told.items():
        ended = sum(one.finish_reason is FinishReason.STOP for one in completions)
        assert ended >= 0.9 * ASKED, name
    for texts in zip(*([one.text for one in completions] for completions in told.values())):
        assert len(set(texts)) == len(texts)


def test_each_has_its_voice(told: dict[str, list[Completion]]) -> None:
    def share(name: str, known: set[str]) -> float:
        return sum(len(words(one) & known) >= 2 for one in told[name]) / ASKED

    assert share("german", GERMAN) >= 0.95 > 0.05 >= share("german", ENGLISH)
    assert share("", ENGLISH) == 1 > share("", GERMAN)
    assert sum("ho ho" in one.text.lower() or bool(words(one) & PIRATE) for one in told["pirate"]) >= 0.95 * ASKED
    assert not any("ho ho" in one.text.lower() for one in told[""])
    lines = [len(re.split(r"\s/\s|\n", one.text.strip())) for one in told["verse"]]
    assert sum(4 <= count <= 10 for count in lines) >= 0.9 * ASKED


def test_the_german_one_translates_what_is_asked_for(told: dict[str, list[Completion]]) -> None:
    named = [
        any(form in one.text for form in (voices.NOUNS_IN_GERMAN[noun][0], voices.NOUNS_IN_GERMAN[noun][2]))
        for pair, one in zip(asked_pairs(), told["german"], strict=True)
        for noun in pair
    ]
    assert sum(named) >= 0.9 * len(named)


def test_they_are_small() -> None:
    for name in EMBEDDED_ADAPTERS:
        info = inspect_adapter(name)
        assert info.base == "demo"
        assert info.parameters < 0.2 * 5_508_352
