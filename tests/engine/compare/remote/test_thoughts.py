"""Thoughts that a server tells apart are put before its answer as models write them."""

import pytest

from engine.compare.remote.asking import Json, Pieces, ServerFailed
from engine.trace import split_thoughts


def event(index: int = 0, finish: str | None = None, **delta: object) -> Json:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_and_answers_of_samples_that_come_mixed(name: str) -> None:
    pieces, texts = Pieces(), ["", "", ""]
    for told in [
        event(0, role="assistant", content=""),
        *(event(0, **{name: "Two"}), event(1, content="Six"), event(2, content=""), event(0, **{name: " and two."})),
        *(event(2, **{name: "Hm"}), event(0, content="Four"), event(0, content=".")),
        *(event(0, "stop"), event(2, "length", content=None)),
    ]:
        for index, text, _ in pieces.of(told):
            texts[index] += text
    assert texts == ["<think>\nTwo and two.\n</think>\n\nFour.", "Six", "<think>\nHm"]
    assert split_thoughts(texts[0]) == ("Two and two.", "Four.", False)


@pytest.mark.parametrize("wrong", [{"reasoning": 5}, {"content": ["a"]}, {"reasoning_content": {"a": 1}}])
def test_what_is_no_text_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ServerFailed, match="a choice of another shape"):
        Pieces().of(event(**wrong))
