"""What quantization costs, measured: against plain computations in float64, and on the demo model."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import resources
from engine import InvalidInput, ModelSpec, measure_quality
from engine.checkpoints import ModelEntry, Place
from engine.jobs import LoadCancelled, LoadProgress
from engine.models.loading import load
from engine.quality import QualityReport, QualityRow, ranked, read_text, suited_text
from engine.quality.measure import UNKNOWN_POOL, Window, Yardstick, pool_bytes, windows_of
from engine.quality.texts import samples, scored_tokens, token_ids
from tests.engine.tiny_models import _llama_like, save_tiny_model

TOKENS, WINDOW = 200, 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(_llama_like("Llama", std=0.1), folder)
    return folder


@pytest.fixture(scope="module")
def other_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with more rows of vocabulary than the tiny one has."""
    folder = tmp_path_factory.mktemp("other")
    save_tiny_model(_llama_like("Llama", vocab_size=3080), folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "some text.txt"
    path.write_text(read_text("prose")[:3000])
    return str(path)


@pytest.fixture(scope="module")
def heard() -> list[LoadProgress]:
    return []


@pytest.fixture(scope="module")
def report(tiny: Path, other_words: Path, text: str, heard: list[LoadProgress]) -> QualityReport:
    source = str(tiny)
    specs = [
        ModelSpec(source, quantization="nf4"),
        ModelSpec(source, quantization="awq"),
        ModelSpec(source, dtype="bfloat16"),
        ModelSpec(source, dtype="float32"),
        ModelSpec(str(other_words)),
    ]
    return measure_quality(specs, ModelSpec(source), text=text, tokens=TOKENS, window=WINDOW, report=heard.append)


def plain_logs(spec: ModelSpec, text: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Log-probabilities in float64 and targets of each window, by a loop of this test's own."""
    model = load(spec)
    model.module.set_attn_implementation("eager")
    ids = model.tokenizer(Path(text).read_text(), verbose=False).input_ids
    left = TOKENS
    for start in range(0, len(ids), WINDOW):
        part = torch.tensor(ids[start : start + WINDOW][: left + 1])
        with torch.inference_mode():
            logits = model.module(input_ids=part[None], use_cache=False).logits[0, :-1].double()
        yield logits - logits.logsumexp(-1, keepdim=True), part[1:]
        left -= len(part) - 1
        if not left:
            return


def test_perplexity_is_that_of_a_plain_loop_over_transformers_own_model(
    report: QualityReport, tiny: Path, text: str
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    ids = tokenizer(Path(text).read_text(), verbose=False).input_ids
    losses: list[float] = []
    for start in range(0, len(ids), WINDOW):
        part = torch.tensor(ids[start : start + WINDOW])[None]
        with torch.inference_mode():
            logs = torch.log_softmax(model(part).logits[0].double(), -1)
        losses += [-logs[i, part[0, i + 1]].item() for i in range(part.shape[1] - 1)]
    expected = math.exp(sum(losses[:TOKENS]) / TOKENS)
    assert report.tokens == TOKENS
    assert report.original.perplexity == pytest.approx(expected, rel=1e-4)


def test_divergence_and_agreement_are_those_of_a_direct_computation_in_float64(
    report: QualityReport, tiny: Path, text: str
) -> None:
    source, row = str(tiny), report.rows[2]
    divergence = agreed = 0.0
    for (p, _), (q, _) in zip(plain_logs(ModelSpec(source), text), plain_logs(row.spec, text)):
        divergence += (p.exp() * (p - q)).sum().item()
        agreed += (p.argmax(-1) == q.argmax(-1)).sum().item()
    assert row.divergence == pytest.approx(divergence / TOKENS, rel=1e-3)
    assert row.agreement == pytest.approx(agreed / TOKENS)
    assert 1e-6 < row.divergence < 0.05


def test_the_original_against_itself_differs_by_nothing(report: QualityReport) -> None:
    itself = report.rows[3]
    assert itself.divergence < 1e-6
    assert itself.agreement == 1
    assert itself.perplexity == pytest.approx(report.original.perplexity, rel=1e-6)
    assert (report.original.divergence, report.original.agreement) == (0, 1)


def test_rows_are_as_asked_with_what_was_loaded_and_how_fast_it_is(report: QualityReport) -> None:
    nf4, _, bfloat16, float32, _ = report.rows
    assert [(row.quantization, row.dtype) for row in (nf4, bfloat16, float32)] == [
        ("nf4", "bfloat16"), ("none", "bfloat16"), ("none", "float32"),
    ]  # fmt: skip
    for row in (report.original, nf4, bfloat16, float32):
        assert row.rate > 0
        assert row.batch_rate > 0
        assert row.load_seconds > 0
    assert nf4.weight_bytes < bfloat16.weight_bytes < float32.weight_bytes
    assert nf4.divergence > bfloat16.divergence
    assert report.machine
    assert report.window == WINDOW


def test_what_cannot_be_loaded_is_a_row_with_the_reason(report: QualityReport) -> None:
    awq, other = report.rows[1], report.rows[4]
    assert "not an AWQ checkpoint" in awq.error
    assert "no quantization of this model" in other.error
    assert awq.perplexity == other.rate == 0


def test_the_order_is_that_of_the_numbers_measured(report: QualityReport) -> None:
    assert [report.rows.index(row) for row in ranked(report)] == [3, 2, 0, 1, 4]

    def row(divergence: float, size: int, error: str = "") -> QualityRow:
        return QualityRow(ModelSpec("demo"), "nf4", "bfloat16", 2.0, divergence, 0.9, weight_bytes=size, error=error)

    rows = (row(0.2, 5), row(0.1, 9), row(0.1, 8), row(0.0, 0, "broken"))
    made_up = QualityReport(report.original, rows, "prose", 1, 2, "")
    assert ranked(made_up) == [rows[2], rows[1], rows[0], rows[3]]


def test_progress_names_what_is_measured_and_counts_tokens(report: QualityReport, heard: list[LoadProgress]) -> None:
    names = list(dict.fromkeys(p.stage.split(":")[0] for p in heard))
    assert names == [
        "original", "nf4 (1 of 5)", "awq (2 of 5)", "bfloat16 (3 of 5)", "float32 (4 of 5)", "auto (5 of 5)",
    ]  # fmt: skip
    counted = [p for p in heard if p.stage == "nf4 (1 of 5): predicting the text"]
    assert [(p.done, p.total) for p in counted] == [(done, TOKENS) for done in (0, 63, 126, 189, 200)]


def test_a_report_is_the_same_after_json(report: QualityReport) -> None:
    assert QualityReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    with pytest.raises(InvalidInput, match="no quality report"):
        QualityReport.from_json({"rows": []})


def test_cancelling_ends_it_at_once(tiny: Path) -> None:
    cancelled = threading.Event()
    with pytest.raises(LoadCancelled):
        measure_quality(
            [ModelSpec(str(tiny), quantization="nf4")], ModelSpec(str(tiny)),
            report=lambda progress: cancelled.set(), cancelled=cancelled,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [({"tokens": 0}, "tokens=0"), ({"window": 1}, "window=1"), ({"text": "no-such-text"}, "'no-such-text'.*prose")],
)
def test_a_mistake_is_told_before_anything_is_loaded(tiny: Path, change: dict[str, int | str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        measure_quality([], ModelSpec(str(tiny)), **change)  # type: ignore[arg-type]


def test_windows_do_not_overlap_and_their_first_tokens_are_not_predicted() -> None:
    ids = list(range(10, 20))
    whole = windows_of(ids, [True] * 10, 4, 100)
    assert [w.ids for w in whole] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19]]
    assert [sum(w.scored) for w in whole] == [3, 3, 1]
    assert [w.ids for w in windows_of(ids, [True] * 10, 4, 4)] == [[10, 11, 12, 13], [14, 15]]
    some = [False, False, True, False, False, False, False, False, False, True]
    assert windows_of(ids, some, 4, 100) == [Window([10, 11, 12], [False, True]), Window([18, 19], [True])]


def test_a_text_that_is_too_short_or_shorter_than_asked_for_is_told(tiny: Path, tmp_path: Path) -> None:
    model = load(ModelSpec(str(tiny)))
    with (tmp_path / "logs").open("w+b") as file:
        with pytest.raises(InvalidInput, match="the text has"):
            Yardstick("a few words", 500, 64, file).prepare(model)
        yardstick = Yardstick("a few words " * 50, 5000, 4096, file)
        yardstick.prepare(model)
    assert yardstick.window == model.card.context == 512
    assert f"{yardstick.tokens:,} of 5,000 tokens: the text has no more" == yardstick.note


def test_a_pool_is_no_larger_than_what_is_decoded_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU one of any size takes all the memory that the text is to be read in."""
    cached = ModelEntry("someone/stories", "", Place.CACHE, resources.path("models/stories-5m"))
    monkeypatch.setattr("engine.checkpoints.catalog.cached_models", lambda: [cached])
    assert pool_bytes(ModelSpec("someone/stories")) == pool_bytes(ModelSpec("demo")) == 16 * 160 * 6144
    assert pool_bytes(ModelSpec("someone/else")) == UNKNOWN_POOL


# The texts.


@pytest.fixture(scope="module")
def encode() -> Callable[[str], list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))
    return lambda text: tokenizer(text, verbose=False).input_ids


def test_of_the_demos_chats_the_answers_are_predicted(encode: Callable[[str], list[int]]) -> None:
    ids, scored = scored_tokens(encode, read_text(suited_text("demo")))
    assert 5000 < len(ids) < 7000
    first = ids.index(5) + 1  # behind <|assistant|>
    assert not any(scored[:first])
    answer = next(i for i in range(first, len(ids)) if not scored[i])
    assert ids[answer - 1] == 2, "</s> is part of the answer"
    assert all(scored[first:answer])
    assert scored.count(True) > 4000


def test_of_other_texts_all_is_predicted(encode: Callable[[str], list[int]]) -> None:
    ids, scored = scored_tokens(encode, read_text("prose"))
    assert all(scored)
    assert len(ids) > 1500
    assert suited_text("some/model") == "prose"


def test_the_demo_is_not_calibrated_with_what_it_is_measured_on() -> None:
    assert not set(samples(read_text("stories"))) & set(samples(read_text("calibration-stories")))


def test_samples_are_paragraphs_or_else_lines() -> None:
    assert samples("one\ntwo\n\nthree\n") == ["one\ntwo", "three"]
    assert samples("one\ntwo\n") == ["one", "two"]
    assert token_ids(lambda text: [1, 1, 5] if text == "<s>a" else [1, 7], ["<s>a", "b"]) == [[1, 5], [1, 7]]


def test_a_text_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "empty.txt").write_text(" \n")
    for name, words in (("latin.txt", "byte 4: not UTF-8"), ("empty.txt", "is empty"), ("none.txt", "No such file")):
        with pytest.raises(InvalidInput, match=words):
            read_text(str(tmp_path / name))
