"""Stop strings across token borders, against a brute-force oracle."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.stop import StopStrings


def oracle(text: str, stops: list[str]) -> tuple[str, bool]:
    """Reads letter by letter: at the first letter that completes a stop string, all from its beginning is cut."""
    for end in range(1, len(text) + 1):
        complete = [len(s) for s in stops if text[:end].endswith(s)]
        if complete:
            return text[: end - max(complete)], True
    return text, False


def streamed(parts: list[str], stops: list[str]) -> tuple[list[str], bool]:
    matcher = StopStrings(stops)
    said = []
    for part in parts:
        text, stopped = matcher.push(part)
        said.append(text)
        if stopped:
            assert matcher.flush() == "", "nothing is flushed after a match"
            return said, True
    return [*said, matcher.flush()], False


LETTERS = st.text("ab🙂", max_size=4)


@settings(max_examples=500)
@given(st.lists(LETTERS, max_size=12), st.lists(st.text("ab🙂", min_size=1, max_size=5), max_size=4))
def test_any_cut_into_tokens_stops_where_the_whole_text_does(parts: list[str], stops: list[str]) -> None:
    said, stopped = streamed(parts, stops)
    whole = "".join(parts)
    # Within one part a later stop may be complete as well: the first complete one counts, as in the oracle.
    assert ("".join(said), stopped) == oracle(whole, stops)


@settings(max_examples=300)
@given(st.lists(LETTERS, max_size=12), st.lists(st.text("ab🙂", min_size=1, max_size=5), max_size=4))
def test_only_what_may_still_become_a_stop_is_held_back(parts: list[str], stops: list[str]) -> None:
    matcher, text, said = StopStrings(stops), "", ""
    for part in parts:
        delta, stopped = matcher.push(part)
        text, said = text + part, said + delta
        if stopped:
            return
        held = text[len(said) :]
        assert text.startswith(said)
        assert held == "" or any(s.startswith(held) and s != held for s in stops)
        longer = [text[-n:] for n in range(len(held) + 1, len(text) + 1)]
        assert not any(s.startswith(tail) for tail in longer for s in stops)


def test_a_stop_across_three_tokens_is_cut_and_nothing_of_it_shown() -> None:
    assert streamed(["once ##", "#", " end", " more"], ["### end"]) == (["once ", "", ""], True)


def test_a_false_start_is_shown_when_it_turns_out_to_be_one() -> None:
    assert streamed(["a#", "#b"], ["###"]) == (["a", "##b", ""], False)


def test_a_started_stop_is_flushed_at_an_end_of_another_kind() -> None:
    assert streamed(["a##"], ["###"]) == (["a", "##"], False)


def test_of_two_stops_complete_at_once_the_longer_is_cut() -> None:
    assert streamed(["xaab"], ["ab", "aab"]) == (["x"], True)


def test_without_stops_everything_passes() -> None:
    assert streamed(["a", "", "b"], []) == (["a", "", "b", ""], False)
