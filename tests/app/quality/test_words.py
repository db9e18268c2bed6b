import csv
import io
import json
from dataclasses import replace

import pytest

from app.quality.words import (
    BATCH,
    COLUMN,
    QualityTable,
    best_of,
    change_words,
    divergence_words,
    facts_words,
    measured_words,
    perplexity_words,
    rows_of,
    scheme_words,
    share_words,
)
from engine.config import SCHEMES
from engine.quality import QualityReport
from engine.quality.report import BATCH as MEASURED_BATCH
from tests.app.quality.reports import ORIGINAL, REPORT


def test_the_batch_is_the_one_that_is_measured() -> None:
    assert BATCH == MEASURED_BATCH


def test_a_scheme_is_told_in_the_words_of_the_engine() -> None:
    assert {name: scheme_words(name) for name in SCHEMES} == {each.name: each.sentence for each in SCHEMES.values()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (divergence_words(0.0), "0"),
        (divergence_words(0.0123), "0.0123"),
        (divergence_words(4e-6), "4.00e-06"),
        (share_words(1.0), "100 %"),
        (share_words(0.9999), "99.9 %"),
        (perplexity_words(3.6), "3.600"),
        (perplexity_words(12_345.6), "12,346"),
    ],
)
def test_figures_keep_their_digits_and_nothing_is_rounded_up_to_whole(words: str, said: str) -> None:
    assert words == said


def test_a_change_is_against_the_original_which_has_none() -> None:
    int8, nf4 = REPORT.rows[:2]
    assert change_words(ORIGINAL, ORIGINAL) == ""
    assert change_words(int8, ORIGINAL) == "+0.2 %"
    assert change_words(nf4, ORIGINAL) == "+5.5 %"
    assert change_words(replace(nf4, perplexity=3.0), ORIGINAL) == "-12.1 %"


def test_the_original_competes_in_speed_but_not_in_likeness_to_itself() -> None:
    rows = rows_of(REPORT)

    def best(key: str) -> list[str]:
        return [rows[i].quantization for i in sorted(best_of(COLUMN[key], REPORT))]

    assert best("divergence") == ["none"]
    assert 0 not in best_of(COLUMN["agreement"], REPORT)
    assert best("rate") == ["awq"]
    assert best_of(COLUMN["load_seconds"], REPORT) == {0}
    assert best("weight_bytes") == ["nf4-double"]


def test_nothing_is_best_where_all_read_alike_or_one_is_alone() -> None:
    rows = tuple(replace(row, divergence=0.01, error="") for row in REPORT.rows)
    assert not best_of(COLUMN["divergence"], replace(REPORT, rows=rows))
    assert not best_of(COLUMN["divergence"], replace(REPORT, rows=REPORT.rows[:1]))


def test_a_row_is_said_whole() -> None:
    words = facts_words(REPORT.rows[1], REPORT)
    assert words.startswith("nf4: perplexity 3.600 (+5.5 %), KL 0.0310 nats, top-1 93.1 %")
    assert words.endswith("4.67 MB")
    assert facts_words(ORIGINAL, REPORT).startswith("the original, float32: perplexity 3.412, 182 tok/s")
    assert facts_words(REPORT.rows[4], REPORT) == "int8, torchao: torchao is not installed"
    assert measured_words(REPORT) == "Measured on 2,048 tokens of stories in windows of 512 · CPU, 2 cores"


def test_csv_and_json_are_exact_and_markdown_is_for_people() -> None:
    table = QualityTable(REPORT)
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["quantization"] for row in rows] == ["original", *(row.quantization for row in REPORT.rows)]
    assert float(rows[2]["divergence_nats"]) == 0.031
    assert float(rows[2]["perplexity_change"]) == pytest.approx(3.60 / 3.412 - 1)
    assert rows[5]["error"] == "torchao is not installed"
    assert rows[5]["dtype"] == rows[5]["perplexity"] == ""
    assert QualityReport.from_json(json.loads(table.json())) == REPORT
    markdown = table.markdown().splitlines()
    assert markdown[2].startswith("| original | float32 | 3.412 | – | 0 | 100 % |")
    assert len({line.count("|") for line in markdown if line.startswith("|")}) == 1
