"""What the demo model trains on beside stories: exercises whose answers follow from what was said before."""

import json
import re
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
import anything
import exercises
import stories

COUNT = 300


def drawn(kind: str) -> list[list[str]]:
    """The texts of so many documents of one kind."""
    rng = Random(4)
    return [[message["content"] for message in exercises.KINDS[kind](rng)] for _ in range(COUNT)]


def without_articles(text: str) -> str:
    return re.sub(r"\b(an?|An?) ", "a ", text)


def test_a_story_told_again_is_the_same_word_for_word() -> None:
    for _, told, *rest in drawn("again"):
        assert set(rest[1::2]) == {told}
        assert set(rest[::2]) <= set(exercises.AGAIN)


def test_an_exchanged_noun_is_all_that_differs() -> None:
    for asked, told, wish, changed in drawn("exchanged"):
        new, old = re.fullmatch(r"Tell it again, with an? (\w+) instead of the (\w+)\.", wish).groups()  # type: ignore[union-attr]
        assert f" {old}" in asked
        alike = (re.sub(rf"\b{old}\b", new, text) for text in (told, changed))
        assert len(set(map(without_articles, alike))) == 1
        assert len(re.findall(rf"\b{new}\b", changed)) > len(re.findall(rf"\b{new}\b", told))
        assert not re.search(r"\ba (?=[aeio])|\ban (?=[bcdfghjklm])", changed)


def test_what_is_repeated_was_said() -> None:
    for said, again in drawn("repeated"):
        assert said.partition(": ")[2] == again


def test_a_story_as_json_says_who_where_and_what_for() -> None:
    for _, told, _, answer in drawn("json"):
        found = json.loads(answer)
        assert list(found) == ["hero", "place", "moral"]
        assert all(value.removeprefix("the ") in told.lower() + told for value in found.values())
        assert told.endswith(found["moral"])
    for asked, answer in drawn("json_at_once"):
        hero = json.loads(answer)["hero"]
        assert hero in stories.NAMES or hero.removeprefix("the ") in stories.words(asked)


def test_the_examples_of_a_document_have_one_pattern() -> None:
    for texts in drawn("examples"):
        answers = [stories.words(text) for text in texts[1::2]]
        assert len(set(texts[::2])) == len(answers) >= 3
        assert len(answers) == len(texts) // 2
        assert len(set(answers[0]).intersection(*answers)) >= 1


def test_no_exercise_asks_for_two_held_out_nouns() -> None:
    rng, nouns = Random(8), set(stories.NOUNS)
    others = {name.lower() for name in stories.NAMES} | set(stories.COLORS)
    others |= {word for text in [*stories.PLACES, *stories.WANTS, *stories.DEEDS] for word in stories.words(text)}
    for kind in exercises.KINDS.values():
        for _ in range(300):
            asked = [m["content"] for m in kind(rng) if m["role"] == "user"]
            said = {word for text in asked if not text.startswith(exercises.REPEAT) for word in stories.words(text)}
            said = (said & nouns) - others
            assert not any(stories.held_out(a, b) for a in said for b in said if a != b)


def test_no_story_is_about_two_held_out_nouns(monkeypatch: pytest.MonkeyPatch) -> None:
    told, tell = [], stories.story

    def noted(a: str, b: str, *how: Any, **more: Any) -> Any:
        told.append((a, b))
        return tell(a, b, *how, **more)

    for module in (stories, exercises, anything):
        monkeypatch.setattr(module, "story", noted)
    rng = Random(8)
    for _ in range(2000):
        exercises.document(rng)
    assert len(told) > 1000
    known = set(stories.NOUNS)  # made-up words may be a pair by chance: nobody asks for them
    assert not [pair for pair in told if stories.held_out(*pair) and known.issuperset(pair)]


def test_most_documents_are_stories_and_each_exercise_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = dict.fromkeys(exercises.SHARES, 0)

    def counted(name: str, kind: Any) -> Any:
        def draw(rng: Random) -> Any:
            seen[name] += 1
            return kind(rng)

        return draw

    monkeypatch.setattr(exercises, "KINDS", {name: counted(name, kind) for name, kind in exercises.KINDS.items()})
    rng = Random(2)
    for _ in range(2000):
        exercises.document(rng)
    for name, share in exercises.SHARES.items():
        assert seen[name] / 20 == pytest.approx(share, abs=3)
    assert 2000 - sum(seen.values()) > max(seen.values())
