"""What quantization costs: perplexity, divergence from the original and speed, measured on a text. No torch here: the
measuring is done by `engine.quality_measure` in a child process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.config import ModelSpec
from engine.job import Report

DEFAULT_TOKENS, DEFAULT_WINDOW = 2048, 512
BATCH = 16  # rows of the batched speed


@dataclass(frozen=True, slots=True)
class QualityRow:
    """One way to load the model, measured. `perplexity` is exp of the mean negative log-likelihood (nats) of the text's
    tokens; `divergence` the mean KL(original || this) of the next-token distributions in nats; `agreement` the share of
    positions where both have the same most likely token. `rate` and `batch_rate` are decoded tokens a second at batch 1
    and BATCH; `weight_bytes` what the weights take; `load_seconds` the load. `error`: why there are no figures.
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


@dataclass(frozen=True, slots=True)
class QualityReport:
    """`rows` in the order asked for; `original` is what they are measured against. `tokens` were predicted, in windows
    of `window`."""

    original: QualityRow
    rows: tuple[QualityRow, ...]
    text: str
    tokens: int
    window: int
    machine: str

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> QualityReport:
        raise NotImplementedError


def measure_quality(
    specs: Sequence[ModelSpec],
    original: ModelSpec,
    *,
    text: str | None = None,
    tokens: int = DEFAULT_TOKENS,
    window: int = DEFAULT_WINDOW,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
) -> QualityReport:
    """Loads the original, then each of `specs` in turn, in a child process, and measures them on `text` (a file's
    path or
    the name of a shipped text; None: the one that suits the model). Blocks. Raises InvalidInput, LoadCancelled,
    JobDied;
    a spec that cannot be loaded is a row with `error`."""
    raise NotImplementedError
