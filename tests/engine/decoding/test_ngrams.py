"""The index of n-grams against a search through the whole text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.ngrams import LONGEST, SHORTEST, NgramIndex


def searched(tokens: list[int], most: int) -> list[int]:
    """What followed the newest earlier occurrence of the longest end of the text, as if the text went on with it."""
    for n in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[-n:]:
                told = list(tokens)
                while len(told) < len(tokens) + most:
                    told.append(told[end + len(told) - len(tokens)])
                return told[len(tokens) :]
    return []


@settings(max_examples=300)
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(1, 9), min_size=1), st.integers(1, 12))
def test_a_growing_text_finds_what_followed_before(tokens: list[int], cuts: list[int], most: int) -> None:
    index, known = NgramIndex(), 0
    for cut in cuts:
        known = min(len(tokens), known + cut)
        assert index.propose(tokens[:known], most) == searched(tokens[:known], most)
