"""What a branch says and why it ends."""

from engine.config.sampling_params import SamplingParams
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
from engine.trace.records import FinishReason
from tests.engine.decoding.tokenizer_kinds import tokenizer

DEMO = tokenizer("demo")
EOS = DEMO.eos_token_id


def output(limit: int = 100, eos: frozenset[int] = frozenset({EOS}), **params: object) -> Output:
    return Output(DetokenizerFactory(DEMO)(), SamplingParams(**params), eos, limit)  # type: ignore[arg-type]


def ids_of(text: str) -> list[int]:
    return list(DEMO(text, add_special_tokens=False).input_ids)


def say(out: Output, ids: list[int]) -> tuple[str, FinishReason | None, int]:
    """The text, the reason for the end, and how many tokens were taken."""
    said = ""
    for taken, token in enumerate(ids, 1):
        text, reason = out.push(token)
        said += text
        if reason is not None:
            return said, reason, taken
    return said, None, len(ids)


def test_an_end_token_ends_it_and_says_nothing() -> None:
    ids = ids_of("a fox and a kite")
    assert say(output(), [*ids, EOS, *ids]) == ("a fox and a kite", FinishReason.STOP, len(ids) + 1)


def test_any_of_several_end_tokens_ends_it() -> None:
    ids = ids_of("a fox and a kite")
    assert say(output(eos=frozenset({EOS, ids[2]})), ids) == (DEMO.decode(ids[:2]), FinishReason.STOP, 3)


def test_end_tokens_are_passed_over_when_they_are_ignored() -> None:
    ids = ids_of("a fox")
    assert say(output(ignore_eos=True), [*ids, EOS, *ids]) == ("a foxa fox", None, 2 * len(ids) + 1)


def test_the_limit_ends_it_with_its_last_token_said() -> None:
    ids = ids_of("a fox and a kite")
    assert say(output(limit=3), ids) == (DEMO.decode(ids[:3]), FinishReason.LENGTH, 3)


def test_an_end_token_at_the_limit_is_a_stop() -> None:
    ids = ids_of("a fox")
    assert say(output(limit=len(ids) + 1), [*ids, EOS])[1] is FinishReason.STOP


def test_a_stop_string_is_not_said() -> None:
    ids = ids_of("a fox and a kite and a boat")
    said, reason, taken = say(output(stop=(" and a k",)), ids)
    assert (said, reason) == ("a fox", FinishReason.STOP)
    assert taken < len(ids)


def test_a_started_stop_string_is_said_after_all_at_an_end_token_or_the_limit() -> None:
    ids = ids_of("a fox and")
    stop = ("and that was the end",)
    assert say(output(stop=stop), [*ids, EOS])[0] == "a fox and"
    assert say(output(stop=stop, limit=len(ids)), ids)[0] == "a fox and"


def test_what_is_held_back_of_a_cut_character_is_flushed_once() -> None:
    ids = ids_of("é")
    assert len(ids) == 2, "the demo tokenizer has no é: two bytes"
    out = output()
    assert out.push(ids[0]) == ("", None)
    assert out.flush() == "\ufffd"
    assert out.flush() == ""


def test_a_cut_character_at_the_limit_is_shown_as_such() -> None:
    ids = ids_of("a é")
    assert say(output(limit=len(ids) - 1), ids)[:2] == ("a \ufffd", FinishReason.LENGTH)


def test_a_stop_string_may_be_made_of_characters_of_several_tokens() -> None:
    ids = ids_of("日本語")
    assert len(ids) > 3
    assert say(output(stop=("本",)), ids)[:2] == ("日", FinishReason.STOP)
