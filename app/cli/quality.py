"""`batchscope quality`: what quantizations of a model cost, measured on a text."""

from __future__ import annotations

import argparse
from dataclasses import replace

from app.cli.shared.columns import columns
from app.cli.shared.options import check_model, model_options, output_options, quiet, whole
from app.cli.shared.progress import job_bar
from app.quality.words import COLUMNS, QualityTable, change_words, measured_words, rows_of, value_of, way_words
from engine import InvalidInput, ModelSpec, measure_quality
from engine.checkpoints import ModelInfo
from engine.config import DTYPES, KV_DTYPES, OF_LAYERS, QUANTIZATIONS, missing
from engine.memory import model_info
from engine.quality import DEFAULT_TOKENS, TEXTS, KvCache, QualityReport, origin_of, ranked

KV = "kv-"  # before the name of a cache: the original over it
CACHES = [f"{KV}{name}" for name in KV_DTYPES[1:]]
WAYS = (*QUANTIZATIONS, *DTYPES[1:], *CACHES, f"{KV}window-TOKENS")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    printed = "\n".join(f"  {column.name:<16} {column.formula}" for column in COLUMNS).replace("%", "%%")
    quality = commands.add_parser(
        "quality",
        help="measure what quantizations cost in quality, and give in memory and speed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"what is printed, nearest to the original first:\n{printed}",
    )
    kinds = f"all that can be had here, or some of {', '.join(WAYS)}; a precision stands for none in it, "
    kinds += "kv-int8 for the original over a KV cache of int8, kv-window-128 over one that forgets"
    against = "what to measure against (default: the model, or what it was made of)"
    text = f"a text file, or one of {', '.join(TEXTS)} (default: the one that suits the model)"
    tokens = f"most tokens to predict (default: {DEFAULT_TOKENS})"
    model_options(quality, "--model")
    quality.add_argument("--quantizations", metavar="KIND,KIND…", default="all", help=kinds)
    quality.add_argument("--original", metavar="SOURCE", help=against)
    quality.add_argument("--text", metavar="FILE|NAME", help=text)
    quality.add_argument("--tokens", type=whole, default=DEFAULT_TOKENS, metavar="N", help=tokens)
    model_options(quality, "--device", "--revision")
    output_options(quality)
    quality.set_defaults(command=run_quality)


def run_quality(options: argparse.Namespace) -> int:
    model = ModelSpec(options.model, device=options.device, revision=options.revision)
    check_model(model)
    original, specs, caches = asked_for(model, options.original, options.quantizations)
    check_model(original)
    given = {"caches": caches, "text": options.text, "tokens": options.tokens}
    stopped = "nothing was measured to its end"
    with job_bar(quiet(options), stopped, "choose a smaller model") as (bar, interrupted):
        report = measure_quality(specs, original, report=bar.loading, cancelled=interrupted, **given)
    table = QualityTable(replace(report, rows=tuple(ranked(report))))
    if options.json:
        print(QualityTable(report).json(), end="")
    elif options.csv:
        print(table.csv(), end="")
    elif options.markdown:
        print(table.markdown(), end="")
    else:
        print(text(table.report))
    return 1 if any(row.error for row in report.rows) else 0


def asked_for(model: ModelSpec, source: str | None, ways: str) -> tuple[ModelSpec, list[ModelSpec], list[str]]:
    """The original, and what is measured against it: models, and names of KV caches for it. Raises InvalidInput."""
    info = _known(model)
    folder = info.folder if info is not None and info.quantized is not None else None
    stored = info.quantized.method if info is not None and info.quantized is not None else ""
    original = replace(model, source=source, revision=None) if source else model
    if folder is not None and source is None:
        found = origin_of(folder)
        if found is None:
            raise InvalidInput(
                f"{model.source} is quantized, and does not say what it was made of: give --original SOURCE"
            )
        original = replace(found, device=model.device)
    if ways == "all":
        mixture = info is not None and info.experts > 0
        kinds = [kind for kind in (QUANTIZATIONS if mixture else OF_LAYERS)[1:] if kind != "awq" and not missing(kind)]
        kinds += ["awq"] if stored == "awq" or model.source == "demo" else []
        kinds += ["bfloat16", *CACHES]
    else:
        kinds = [kind.strip() for kind in ways.split(",") if kind.strip()]
    if not kinds:
        raise InvalidInput(f"--quantizations {ways!r}: names none; give all, or some of {', '.join(WAYS)}")
    for kind in kinds:
        if kind.startswith(KV):
            KvCache.named(kind.removeprefix(KV))
        elif kind not in WAYS[:-1]:
            raise InvalidInput(f"--quantizations {kind!r}: must be all, or some of {', '.join(WAYS)}")

    dense = original if stored else model

    def spec(kind: str) -> ModelSpec:
        if kind in DTYPES:
            return replace(dense, dtype=kind)
        if kind == stored:
            return model
        return replace(dense, quantization=kind)

    once = list(dict.fromkeys(kinds))
    caches = [kind.removeprefix(KV) for kind in once if kind.startswith(KV)]
    return original, [spec(kind) for kind in once if not kind.startswith(KV)], caches


def _known(model: ModelSpec) -> ModelInfo | None:
    """What is known of a model; None of one whose files cannot be had."""
    try:
        return model_info(model)
    except InvalidInput:
        return None


def text(report: QualityReport) -> str:
    """The table in columns, for a terminal."""
    head = ["", COLUMNS[0].name, "change", *(column.name for column in COLUMNS[1:])]
    lines, failed = [head], []
    for row in rows_of(report):
        name = f"original, {row.dtype}" if row is report.original else way_words(row)
        if row.error:
            failed.append(f"{name} failed: {row.error}")
            continue
        values = [value_of(column, row) for column in COLUMNS]
        cells = ["–" if v is None else column.text(v) for column, v in zip(COLUMNS, values)]
        lines.append([name, cells[0], change_words(row, report.original) or "–", *cells[1:]])
    table = columns(lines, right=range(1, len(head)))
    return "\n".join([measured_words(report), "", *table, *(["", *failed] if failed else [])])
