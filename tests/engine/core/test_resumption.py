"""A request that began at another engine goes on as if it had been here all the time, wherever it was cut."""

from typing import Any

import pytest

from engine import Engine, EngineConfig, InvalidInput, SamplingParams, Submission
from engine.core import Completion
from engine.core.stream import Stream
from engine.trace.records import FinishReason

STORY = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
SCHEMA = '{"type": "object", "properties": {"hero": {"enum": ["fox", "owl"]}}, "required": ["hero"]}'
LONGEST = 20
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 1.0},
    "samples": {"temperature": 1.0, "n": 3},
    "limits": {"temperature": 1.2, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    "repetition": {"temperature": 1.0, "repetition_penalty": 1.4},
    "counts": {"temperature": 1.0, "frequency_penalty": 0.8, "presence_penalty": 0.5},
    "counts of a greedy one": {"temperature": 0, "frequency_penalty": 1.5},
    "least": {"temperature": 1.0, "min_tokens": 12, "logit_bias": {2: 20.0}},
    "banned": {"temperature": 1.0, "bad_words": ("fox", "the kite")},
    "likely": {"temperature": 1.0, "logprobs": 3},
    "choices": {
        "temperature": 1.0,
        "choices": ("a fox and a kite in the wind", "a fox and a kite in the wood", "an owl by the sea"),
    },
    "schema": {"temperature": 1.0, "json_schema": SCHEMA, "n": 2},
}


def said_after(stream: Stream, cut: int) -> tuple[list[str], tuple[tuple[int, ...] | None, ...]]:
    """The texts of the samples' first `cut` tokens, and those; None for a sample that was over by then."""
    texts, tokens = [""] * stream.samples, [list[int]() for _ in range(stream.samples)]
    told = [c.token_ids for c in stream.results()]
    for delta in stream.deltas:
        at = tokens[delta.sample]
        if len(at) < cut:
            at += delta.token_ids
            texts[delta.sample] += delta.text
    over = [len(tokens[i]) == len(told[i]) for i in range(stream.samples)]
    return texts, tuple(None if o else tuple(ids) for o, ids in zip(over, tokens))


def check_cuts(engine: Engine, params: SamplingParams) -> None:
    """Cuts it after every token but the last: texts, tokens, reasons and log-probabilities are those of the whole."""
    whole = engine.submit(STORY, params)
    results = whole.results(timeout=30)
    longest = max(len(c.token_ids) for c in results)
    cuts = [said_after(whole, cut) for cut in range(1, longest)]
    assert longest > 4
    on = engine.submit_many([Submission(STORY, params, said=said) for _, said in cuts])
    for (texts, said), stream in zip(cuts, on):
        for i, (text, known, part) in enumerate(zip(texts, said, stream.results(timeout=30))):
            if known is None:
                assert (part.finish_reason, part.text, part.token_ids) == (FinishReason.CANCELLED, "", ())
                continue
            check_rest(results[i], text, len(known), part)
    alternatives = [d.alternatives for d in whole.deltas]
    for (_, said), stream in zip(cuts, on):
        if params.logprobs and said[0] is not None:
            kept = alternatives[len(said[0]) :]
            found = [d.alternatives for d in stream.deltas]
            assert [[(i, text) for i, _, text in one] for (one,) in found if one] == [
                [(i, text) for i, _, text in one] for (one,) in kept if one
            ]


def check_rest(whole: Completion, text: str, cut: int, part: Completion) -> None:
    assert part.token_ids == whole.token_ids[cut:]
    assert (text + part.text, part.finish_reason) == (whole.text, whole.finish_reason)
    assert part.logprobs == pytest.approx(whole.logprobs[cut:], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_is_cut_anywhere_says_the_rest_of_what_it_would_have_said(demo: Engine, kind: str) -> None:
    assert demo.card.dtype == "float32"
    check_cuts(demo, SamplingParams(max_tokens=LONGEST, seed=11, **KINDS[kind]))


def test_a_stop_string_is_met_across_the_cut_and_characters_are_put_together(demo: Engine) -> None:
    whole = demo.submit(STORY, SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)).result(timeout=30)
    middle = whole.text[len(whole.text) // 2 :]
    check_cuts(demo, SamplingParams(max_tokens=40, temperature=0, ignore_eos=True, stop=(middle[:9], "no such")))
    bytes_only = {i: 30.0 for i in range(demo.card.vocabulary) if "\ufffd" in demo.pieces([i])[0]}
    if bytes_only:
        check_cuts(
            demo, SamplingParams(max_tokens=LONGEST, seed=3, ignore_eos=True, logit_bias=tuple(bytes_only.items()))
        )


@pytest.mark.parametrize("config", [
    EngineConfig(mode="chunked", max_running=8, token_budget=16, kv_memory=8 << 20, prefix_caching=True, depth=1),
    EngineConfig(max_running=3, token_budget=512, kv_memory=8 << 20, speculation="ngram"),
])  # fmt: skip
def test_the_engine_that_goes_on_may_be_set_otherwise(demo: Engine, config: EngineConfig) -> None:
    params = SamplingParams(max_tokens=LONGEST, seed=5, n=2, frequency_penalty=0.5)
    whole = demo.submit(STORY, params)
    results = whole.results(timeout=30)
    texts, said = said_after(whole, 7)
    demo.begin(config)
    parts = demo.submit_many([Submission(STORY, params, said=said)])[0].results(timeout=30)
    for result, text, part in zip(results, texts, parts):
        check_rest(result, text, 7, part)


def test_an_end_that_was_lost_is_told_again(demo: Engine) -> None:
    params = SamplingParams(max_tokens=8, seed=1, n=2)
    whole = demo.submit(STORY, params).results(timeout=30)
    on = demo.submit_many([Submission(STORY, params, said=(whole[0].token_ids, whole[1].token_ids[:3]))])[0]
    parts = on.results(timeout=30)
    assert (parts[0].finish_reason, parts[0].text, parts[0].token_ids) == (whole[0].finish_reason, "", ())
    assert parts[1].token_ids == whole[1].token_ids[3:]
    over = demo.submit_many([Submission(STORY, params, said=tuple(c.token_ids for c in whole))])[0].results(timeout=30)
    assert [c.finish_reason for c in over] == [c.finish_reason for c in whole]


@pytest.mark.parametrize(("params", "said", "names"), [
    (SamplingParams(seed=1), ((1,), (2,)), "2 samples"),
    (SamplingParams(), ((1,),), "seed"),
    (SamplingParams(beam_width=2), ((1,), (2,)), "beam search"),
    (SamplingParams(seed=1), ((1 << 40,),), "token ids"),
    (SamplingParams(seed=1, max_tokens=2), ((5, 6, 7),), "over before"),
])  # fmt: skip
def test_what_cannot_go_on_is_refused_by_name(demo: Engine, params: SamplingParams, said: Any, names: str) -> None:
    with pytest.raises(InvalidInput, match=names):
        demo.submit_many([Submission([5, 6], params, said=said)])


def test_a_mode_without_blocks_refuses_it(demo: Engine) -> None:
    demo.begin(EngineConfig(mode="static", max_running=4, kv_memory=8 << 20))
    with pytest.raises(InvalidInput, match="mode 'static'"):
        demo.submit_many([Submission([5, 6], SamplingParams(temperature=0), said=((1,),))])
