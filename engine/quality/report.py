"""What quantization costs: perplexity, divergence from the original and speed, measured on a text. No torch here: the
measuring is done by `engine.quality.measure` in a child process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.config.checks import InvalidInput, whole
from engine.config.specs import ModelSpec
from engine.jobs.job import Report, run_job
from engine.jobs.progress import LoadProgress
from engine.quality.kv_cache import KvCache
from engine.quality.texts import read_text, suited_text

DEFAULT_TOKENS, DEFAULT_WINDOW = 2048, 512
BATCH = 16  # rows of the batched speed
READING = "predicting the text"  # the stage that counts tokens


@dataclass(frozen=True, slots=True)
class QualityRow:
    """One way to load the model, measured. `perplexity` is exp of the mean negative log-likelihood (nats) of the text's
    tokens; `divergence` the mean KL(original || this) of the next-token distributions in nats; `agreement` the share of
    positions where both have the same most likely token. `rate` and `batch_rate` are decoded tokens a second at batch 1
    and BATCH; `weight_bytes` what the weights take; `load_seconds` the load. `error`: why there are no figures.
    `cache` is the name of its KV cache, as `KvCache` has it, "" for the model's own.
    """

    spec: ModelSpec
    quantization: str  # as loaded: an AWQ checkpoint's is "awq" whatever the spec says
    dtype: str
    perplexity: float = 0.0
    divergence: float = 0.0
    agreement: float = 1.0
    rate: float = 0.0
    batch_rate: float = 0.0
    load_seconds: float = 0.0
    weight_bytes: int = 0
    error: str = ""
    cache: str = ""


@dataclass(frozen=True, slots=True)
class QualityReport:
    """`rows` in the order asked for; `original` is what they are measured against. `tokens` were predicted, in windows
    of `window`; `note` says why that were fewer than asked for."""

    original: QualityRow
    rows: tuple[QualityRow, ...]
    text: str
    tokens: int
    window: int
    machine: str
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": [asdict(row) for row in self.rows]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> QualityReport:
        """Raises InvalidInput for what `to_json` did not write."""
        try:
            rows = tuple(_row(row) for row in values["rows"])
            return cls(**{**values, "original": _row(values["original"]), "rows": rows})
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"this is no quality report of this version: {error}; measure again") from error


def _row(values: dict[str, Any]) -> QualityRow:
    return QualityRow(**{**values, "spec": ModelSpec(**values["spec"])})


def ranked(report: QualityReport) -> list[QualityRow]:
    """The rows by what was measured: the nearest to the original first, of equals the smaller; failed ones last."""
    return sorted(report.rows, key=lambda row: (bool(row.error), row.divergence, row.weight_bytes))


def measure_quality(
    specs: Sequence[ModelSpec],
    original: ModelSpec,
    *,
    caches: Sequence[str] = (),
    text: str | None = None,
    tokens: int = DEFAULT_TOKENS,
    window: int = DEFAULT_WINDOW,
    report: Report | None = None,
    came: Callable[[QualityReport], None] | None = None,
    cancelled: threading.Event | None = None,
) -> QualityReport:
    """Loads the original, then each of `specs` in turn, and itself over `caches` of these names, in a child process,
    and measures them on `text` (a file's path or the name of a shipped text; None: the one that suits the model). Of a
    shipped text of chats, what the assistant says is predicted, which is what chat models learn. Blocks. Raises
    InvalidInput, LoadCancelled, JobDied; a spec that cannot be loaded is a row with `error`. Each stage that `report`
    hears begins with what is measured and a colon; `came` hears what there is as soon as the original is measured, and
    after each of `specs` but the last."""
    whole("tokens", tokens)
    whole("window", window, 2)
    for cache in caches:
        KvCache.named(cache)
    text = text or suited_text(original.source)
    read_text(text)  # a mistake costs no wait
    models = {"specs": [asdict(spec) for spec in specs], "original": asdict(original), "caches": [*caches]}
    arguments = {**models, "text": text, "tokens": tokens, "window": window}

    def hear(progress: LoadProgress) -> None:
        if progress.part is None:
            if report is not None:
                report(progress)
        elif came is not None:
            came(QualityReport.from_json(progress.part))

    return QualityReport.from_json(run_job("engine.quality.measure:work", arguments, hear, cancelled))
