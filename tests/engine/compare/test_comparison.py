"""The table of a comparison: values, ratios, spread, and every form it is written in."""

import csv
import io
import json
from dataclasses import replace

import pytest

from engine.compare.comparison import Comparison, MeasureCell, compare, table
from engine.trace.measures.metrics import Metrics, measure
from engine.trace.measures.slo import Slo
from tests.engine.trace.hand_made import static_batch

SLOW = measure(static_batch([5] * 8, [10] * 7 + [100]), Slo(e2e=10))
QUICK = replace(SLOW, output_throughput=2 * SLOW.output_throughput, wasted_row_share=0.0)


@pytest.fixture
def compared() -> Comparison:
    """Two repeats of a quick lane, one of which is 10 % quicker, against a slow one; and a lane that failed."""
    quicker = replace(QUICK, output_throughput=1.1 * QUICK.output_throughput)
    return compare(["static · 8", "quick | odd", "gone"], [[SLOW], [QUICK, quicker], []], ["", "", "no such model"])


def test_each_measure_is_the_median_with_its_range_and_ratio(compared: Comparison) -> None:
    row = compared.row("output_throughput")
    assert row is not None
    slow, quick, gone = row.cells
    assert (slow.value, slow.ratio, slow.spread) == (1.7, 1.0, None)
    assert quick.value == pytest.approx(2.1 * 1.7)
    assert (quick.low, quick.high) == (pytest.approx(3.4), pytest.approx(3.74))
    assert quick.ratio == pytest.approx(2.1)
    assert quick.spread == pytest.approx(0.05 / 1.05)
    assert (gone.value, gone.low, gone.high, gone.ratio, gone.spread) == (None,) * 5
    assert row.best == 1


def test_what_is_the_same_everywhere_has_no_best_lane(compared: Comparison) -> None:
    row = compared.row("ttft.mean")
    assert row is not None
    assert row.best is None
    wasted = compared.row("wasted_row_share")
    assert wasted is not None
    assert (wasted.best, wasted.cells[0].value) == (1, 0.7875)


def test_a_failed_first_lane_leaves_the_others_without_ratios() -> None:
    found = compare(["gone", "here"], [[], [SLOW]], ["no such model", ""])
    row = found.row("output_throughput")
    assert row is not None
    assert [c.ratio for c in row.cells] == [None, None]


def test_goodput_has_a_row_only_where_there_is_an_slo() -> None:
    assert compare(["a"], [[SLOW]]).row("goodput") is not None
    assert compare(["a"], [[replace(SLOW, goodput=None)]]).row("goodput") is None


def test_the_text_stands_in_columns(compared: Comparison) -> None:
    lines = compared.text().splitlines()
    by_name = {line[:22].strip(): line for line in lines}
    assert lines[0].split("   ")[-1].strip() == "gone"
    assert by_name["output throughput"].split() == [
        "output", "throughput", "1.70", "tok/s", "3.57", "tok/s", "±4.8", "%", "×2.10", "–",
    ]  # fmt: skip
    assert "78.8 %" in by_name["wasted row-steps"]
    assert lines[-1] == "gone failed: no such model"
    assert len({len(line) for line in lines[:-2] if line}) == 1


def test_lanes_that_do_not_fit_stand_below() -> None:
    wide = compare([f"lane {i}" for i in range(5)], [[SLOW]] * 5)
    folded = wide.text(width=80).splitlines()
    assert max(map(len, folded)) <= 80 < max(map(len, wide.text().splitlines()))
    assert sum(line.startswith("output throughput") for line in folded) == 2
    assert all(" ".join(folded).count(f"lane {i}") == 1 for i in range(5))


def test_csv_and_json_hold_the_same_numbers(compared: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(compared.csv())))
    data = json.loads(compared.json())
    assert [lane["error"] for lane in data["lanes"]] == ["", "", "no such model"]
    assert [r["measure"] for r in rows] == [m["key"] for m in data["measures"]]
    for row, m in zip(rows, data["measures"]):
        for name, lane in zip(compared.names, m["lanes"]):
            for what in ("value", "low", "high", "ratio"):
                text = row[name if what == "value" else f"{name} {what}"]
                assert (float(text) if text else None) == lane[what]
        assert row["formula"] == m["formula"] != ""


def test_markdown_is_a_table_with_the_best_in_bold(compared: Comparison) -> None:
    lines = compared.markdown().splitlines()
    assert lines[0] == "| measure | static · 8 | quick \\| odd | gone |"
    assert lines[1] == "|---|---:|---:|---:|"
    assert any(line.startswith("| output throughput | 1.70 tok/s | **3.57 tok/s") for line in lines)
    assert lines[-1] == "gone failed: no such model"


def test_one_run_prints_as_the_same_table() -> None:
    metrics: Metrics = SLOW
    printed = table(metrics)
    assert "8 of 8 completed in 100.00 s" in printed
    assert "40 in, 170 out" in printed
    assert "78.8 %" in printed
    assert "×" not in printed


def test_of_next_to_nothing_no_spread_is_told() -> None:
    assert MeasureCell((0.0001, 4e-13, 2e-13)).spread is None
    assert MeasureCell((-0.1, 0.1, 0.2)).spread == pytest.approx(1.5)
