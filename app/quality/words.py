"""A quality report in words: its columns with their formulas, what is best in each, and the table that is
exported."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from app.language import digits, tr
from app.ui.tables.facts import Cell, Facts
from app.words import bytes_words, duration, number
from engine.config import SCHEMES
from engine.quality import KvCache, QualityReport, QualityRow

BATCH = 16


def scheme_words(name: str) -> str:
    """What a quantization does to the weights, as the engine says it."""
    match name:
        case "none":
            return tr("weights as they were trained, in the precision chosen")
        case "int8":
            return tr("LLM.int8(): 8-bit weights, outliers of the inputs in 16 bit")
        case "int8-plain":
            return tr("8-bit weights and inputs, no outliers kept apart (threshold 0)")
        case "nf4":
            return tr("4-bit NormalFloat of QLoRA, a scale every 64 weights")
        case "nf4-double":
            return tr("nf4 whose scales are quantized too, to 8 bit")
        case "awq":
            return tr("4 bit, made beforehand with calibration: needs such a checkpoint")
        case "torchao-int8":
            return tr("8-bit weights, a scale a row; inputs stay as they are")
        case "mxfp4":
            return tr("4-bit floats, a power of two every 32: of a mixture's experts alone, as gpt-oss is published")
    raise KeyError(name)


def way_words(row: QualityRow) -> str:
    """What a row is called: its quantization; "none" says its precision too, since the original is none as well."""
    if row.cache:
        return f"KV {row.cache}"
    title = SCHEMES[row.quantization].title if row.quantization in SCHEMES else row.quantization
    return f"{title}, {row.dtype}" if row.quantization == "none" else title


def cache_words(name: str) -> str:
    """What the KV cache of that name is, for a row of the original over it."""
    cache = KvCache.named(name)
    if cache.kv_window is None:
        return tr(
            "the original over a KV cache of {dtype}: a byte a value, and one for each head", dtype=cache.kv_dtype
        )
    kept = {"newest": cache.kv_window, "first": cache.kv_sinks}
    return tr("the original over a cache that keeps the newest {newest:,} tokens and the first {first:,}", **kept)


def precision(row: QualityRow) -> str:
    """The dtype; "" for what was never loaded, where "auto" is all that is known."""
    return "" if row.dtype == "auto" else row.dtype


@dataclass(frozen=True, slots=True)
class Column:
    """`said` gives its name and its formula in the language that is spoken, which may be chosen after this module is
    imported. `value` None: there is nothing to say. `better` is +1 where more is better, -1 where less is, 0 where
    neither. `contested`: the original is among those that can be best."""

    key: str
    said: Callable[[], tuple[str, str]]
    value: Callable[[QualityRow], float | None]
    text: Callable[[float], str]
    better: int = -1
    contested: bool = True

    @property
    def name(self) -> str:
        return self.said()[0]

    @property
    def formula(self) -> str:
        return self.said()[1]


def divergence_words(value: float) -> str:
    """Nats in three figures: "0.0123", "4.50e-06", "0"."""
    return f"{value:#.3g}" if value else "0"


def share_words(value: float) -> str:
    """ "97.3 %"; only what is whole is "100 %"."""
    return "100 %" if value == 1 else f"{math.floor(1000 * value) / 10:.1f} %"


def perplexity_words(value: float) -> str:
    return f"{value:#.4g}" if value < 1000 else digits(f"{value:,.0f}")


def _perplexity() -> tuple[str, str]:
    formula = tr("exp of the mean negative log-likelihood (nats) of the text's tokens; less is better")
    return tr("perplexity"), formula


def _divergence() -> tuple[str, str]:
    formula = tr(
        "mean over the text's positions of Σ p·ln(p ÷ q), in nats: p the original's next-token probabilities, q these; "
        "0 is the same"
    )
    return tr("KL divergence"), formula


def _agreement() -> tuple[str, str]:
    formula = tr("positions where both have the same most likely next token ÷ all positions")
    return tr("top-1 agreement"), formula


def _rate() -> tuple[str, str]:
    return tr("tok/s, alone"), tr("tokens decoded ÷ seconds, one request at a time")


def _batch_rate() -> tuple[str, str]:
    formula = tr("tokens decoded ÷ seconds, {count} requests in a batch, all together", count=BATCH)
    return tr("tok/s, batch {count}", count=BATCH), formula


def _load() -> tuple[str, str]:
    return tr("load"), tr("seconds from the files to a model that can answer")


def _weights() -> tuple[str, str]:
    return tr("weights"), tr("bytes that all weights take in memory once loaded")


_own = partial(Column, contested=False)  # the original's own value is what the others are held against
COLUMNS = (
    _own("perplexity", _perplexity, lambda row: row.perplexity, perplexity_words),
    _own("divergence", _divergence, lambda row: row.divergence, divergence_words),
    _own("agreement", _agreement, lambda row: row.agreement, share_words, 1),
    Column("rate", _rate, lambda row: row.rate or None, number, 1),
    Column("batch_rate", _batch_rate, lambda row: row.batch_rate or None, number, 1),
    Column("load_seconds", _load, lambda row: row.load_seconds or None, duration),
    Column("weight_bytes", _weights, lambda row: float(row.weight_bytes) or None, bytes_words),
)
COLUMN = {column.key: column for column in COLUMNS}
EXACT = (
    "quantization dtype perplexity perplexity_change divergence_nats top1_agreement tokens_per_second "
    f"tokens_per_second_batch_{BATCH} load_seconds weight_bytes error"
).split()


def change_words(row: QualityRow, original: QualityRow) -> str:
    """How much the perplexity differs from the original's: "+0.4 %", "" for the original itself."""
    if row is original or not (original.perplexity > 0 and row.perplexity > 0):
        return ""
    change = 100 * (row.perplexity / original.perplexity - 1)
    return f"{change:+.{1 if abs(change) >= 0.0995 else 2}f} %" if abs(change) < 1000 else f"{change:+,.0f} %"


def rows_of(report: QualityReport) -> list[QualityRow]:
    """All that was measured, the original first."""
    return [report.original, *report.rows]


def value_of(column: Column, row: QualityRow) -> float | None:
    """None where the row has no figures, or the figure says nothing."""
    value = None if row.error else column.value(row)
    return value if value is not None and math.isfinite(value) else None


def best_of(column: Column, report: QualityReport) -> frozenset[int]:
    """Places in `rows_of` of the best values, as they are written; none where fewer than two compete."""
    rows = rows_of(report)
    values = {i: value_of(column, row) for i, row in enumerate(rows) if i or column.contested}
    known = {i: value for i, value in values.items() if value is not None}
    if len(known) < 2 or not column.better:
        return frozenset()
    top = (max if column.better > 0 else min)(known.values())
    words = column.text(top)
    same = frozenset(i for i, value in known.items() if column.text(value) == words)
    return same if len(same) < len(known) else frozenset()


def facts_words(row: QualityRow, report: QualityReport) -> str:
    """A row whole, on one line: for the point of a chart, and for those who hear it."""
    name = tr("the original, {dtype}", dtype=row.dtype) if row is report.original else way_words(row)
    if row.error:
        return f"{name}: {row.error}"
    parts = [tr("perplexity {value}", value=perplexity_words(row.perplexity))]
    change = change_words(row, report.original)
    if change:
        parts[0] += f" ({change})"
        parts += [f"KL {divergence_words(row.divergence)} nats", f"top-1 {share_words(row.agreement)}"]
    parts += [tr("{rate} tok/s alone", rate=number(row.rate))] if row.rate else []
    parts += [tr("{rate} in a batch of {count}", rate=number(row.batch_rate), count=BATCH)] if row.batch_rate else []
    parts += [bytes_words(row.weight_bytes)] if row.weight_bytes else []
    return f"{name}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class QualityTable:
    """A report as it is copied and saved: exact numbers in CSV and JSON, figures for people in Markdown."""

    report: QualityReport

    def facts(self) -> Facts:
        original = self.report.original
        rows: list[tuple[Cell, ...]] = []
        for row in rows_of(self.report):
            name = "original" if row is original else way_words(row) if row.cache else row.quantization
            change = row.perplexity / original.perplexity - 1 if original.perplexity > 0 else None
            speed = row.rate, row.batch_rate, row.load_seconds, row.weight_bytes
            figures: tuple[Cell, ...] = row.perplexity, change, row.divergence, row.agreement, *speed
            rows.append((name, precision(row), *((None,) * len(figures) if row.error else figures), row.error))
        return Facts(tuple(EXACT), rows)

    def csv(self) -> str:
        return self.facts().csv()

    def json(self) -> str:
        return json.dumps(self.report.to_json(), indent=2) + "\n"

    def markdown(self) -> str:
        head = [tr("quantization"), tr("precision"), COLUMNS[0].name, tr("change"), *(c.name for c in COLUMNS[1:])]
        lines = [f"| {' | '.join(head)} |", f"|{'---|' * 2}{'---:|' * (len(head) - 2)}"]
        for row in rows_of(self.report):
            name = tr("original") if row is self.report.original else way_words(row)
            if row.error:
                lines.append(f"| {name} | {precision(row)} | {row.error} |{' |' * (len(head) - 3)}")
                continue
            values = ((column, value_of(column, row)) for column in COLUMNS)
            cells = [column.text(value) if value is not None else "–" for column, value in values]
            cells.insert(1, change_words(row, self.report.original) or "–")
            lines.append(f"| {name} | {row.dtype} | {' | '.join(cells)} |")
        return "\n".join((*lines, "", measured_words(self.report), ""))


def measured_words(report: QualityReport) -> str:
    """On what, how much, where: "measured on 2,048 tokens of stories in windows of 512 · CPU, 2 cores"."""
    text = report.text.rsplit("/", 1)[-1]
    words = tr(
        "Measured on {tokens:,} tokens of {text} in windows of {window:,}",
        tokens=report.tokens,
        text=text,
        window=report.window,
    )
    return " · ".join(part for part in (words, report.machine, report.note) if part)
