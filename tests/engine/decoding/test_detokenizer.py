"""Deltas joined are the one-shot decode of the ids: any script, any tokenizer, any cut."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.decoding.detokenizer import ByteLevelDetokenizer, WindowDetokenizer
from engine.decoding.detokenizer_factory import DetokenizerFactory
from tests.engine.decoding.tokenizer_kinds import KINDS, tokenizer

WORDS = [
    "the fox", "a story", "doesn't", " ", "日本語", "👩‍👩‍👧", "é", "é",
    "שָׁלוֹם", ".", "<think>",
]  # fmt: skip
SCRIPTS = st.one_of(
    st.text(max_size=40),
    st.text(st.sampled_from("🙂👩‍👧🇫🇷é́ñ̃ẹ̀日本語中文한국שלוםمرحبا Ελ рт a,.'!\n\t"), max_size=40),
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
)  # fmt: skip


def one_shot(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def streamed(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    detokenizer = DetokenizerFactory(tokenizer)()
    return [detokenizer.push(token) for token in ids] + [detokenizer.flush()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150)
@given(text=SCRIPTS)
@example("")
@example("日本語の文章" * 12)
@example("👩‍👩‍👧 " * 12)
@example("the fox doesn't, the story. " * 8)
def test_the_deltas_of_any_text_join_to_its_one_shot_decode(kind: str, text: str) -> None:
    ids = tokenizer(kind)(text, add_special_tokens=False).input_ids
    assert "".join(streamed(tokenizer(kind), ids)) == one_shot(tokenizer(kind), ids)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100)
@given(text=SCRIPTS, data=st.data())
def test_a_text_cut_anywhere_joins_to_the_decode_of_what_there_is(kind: str, text: str, data: st.DataObject) -> None:
    ids = tokenizer(kind)(text, add_special_tokens=False).input_ids
    begin = data.draw(st.integers(0, len(ids)))
    end = data.draw(st.integers(begin, len(ids)))
    part = ids[begin:end]
    whole = one_shot(tokenizer(kind), part)
    joined = "".join(streamed(tokenizer(kind), part))
    if kind == "bpe, byte fallback" and "\ufffd" in whole:
        # A run of byte tokens with a fault in it decodes to nothing but U+FFFD, the good characters before it included:
        # those were shown already, and stay.
        assert len(joined.replace("\ufffd", "")) >= len(whole.replace("\ufffd", ""))
    else:
        assert joined == whole


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bpe, byte fallback"])
@settings(max_examples=150)
@given(data=st.data())
def test_the_deltas_of_random_tokens_join_to_their_one_shot_decode(kind: str, data: st.DataObject) -> None:
    """Tokens past the vocabulary (padding of the embedding matrix), special ones and broken UTF-8 among them."""
    past = 3 if kind == "demo" or kind.startswith("byte level") else 0
    ids = data.draw(st.lists(st.integers(0, len(tokenizer(kind)) - 1 + past), max_size=60))
    assert "".join(streamed(tokenizer(kind), ids)) == one_shot(tokenizer(kind), ids)


@settings(max_examples=150)
@given(ids=st.lists(st.integers(0, 300), max_size=60))
def test_random_tokens_with_byte_fallback_lose_no_character_that_was_shown(ids: list[int]) -> None:
    kind = tokenizer("bpe, byte fallback")
    ids = [i % len(kind) for i in ids]
    whole, joined = one_shot(kind, ids), "".join(streamed(kind, ids))
    if "\ufffd" not in whole:
        assert joined == whole


@pytest.mark.parametrize("kind", KINDS)
def test_no_delta_shows_half_a_character(kind: str) -> None:
    text = "日本語 🙂 é the story 🙃 文章"
    ids = tokenizer(kind)(text, add_special_tokens=False).input_ids
    shown = ""
    for delta in streamed(tokenizer(kind), ids):
        shown += delta
        assert "\ufffd" not in delta
        assert one_shot(tokenizer(kind), ids).startswith(shown)


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_as_soon_as_it_is_certain(kind: str) -> None:
    ids = tokenizer(kind)("the story about a fox", add_special_tokens=False).input_ids
    deltas = streamed(tokenizer(kind), ids)
    assert deltas[-1] == "", "nothing waits for the end"
    assert sum(1 for delta in deltas if delta) >= len(ids) - 1


def test_the_demo_tokenizer_is_decoded_by_its_bytes_and_others_by_a_window() -> None:
    assert isinstance(DetokenizerFactory(tokenizer("demo"))(), ByteLevelDetokenizer)
    assert isinstance(DetokenizerFactory(tokenizer("word piece"))(), WindowDetokenizer)


def test_a_long_text_is_decoded_in_a_window_that_does_not_grow() -> None:
    for kind in ("unigram, metaspace", "bpe, byte fallback", "word piece"):
        ids = tokenizer(kind)("the quick brown fox jumps over the lazy dog " * 40, add_special_tokens=False).input_ids
        detokenizer = DetokenizerFactory(tokenizer(kind))()
        assert isinstance(detokenizer, WindowDetokenizer)
        longest = 0
        for token in ids:
            detokenizer.push(token)
            longest = max(longest, len(detokenizer._ids))
        assert longest <= 60, kind


def test_two_streams_of_one_factory_do_not_mix() -> None:
    factory = DetokenizerFactory(tokenizer("demo"))
    ids = tokenizer("demo")("日本語", add_special_tokens=False).input_ids
    first, second = factory(), factory()
    said = [first.push(i) + second.push(i) for i in ids]
    assert "".join(said).count("日") == 2
