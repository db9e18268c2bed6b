"""A report as it could be: nobody measured it."""

from engine import ModelSpec
from engine.quality import QualityReport, QualityRow

ORIGINAL = QualityRow(ModelSpec("demo"), "none", "float32", 3.412, 0, 1, 182.1, 940.2, 0.41, 20_316_160)


def row(quantization: str, *figures: float, size: int) -> QualityRow:
    perplexity, divergence, agreement, rate, batch, load = figures
    return QualityRow(
        ModelSpec("demo", quantization), quantization, "bfloat16", perplexity, divergence, agreement, rate, batch, load,
        size,
    )  # fmt: skip


REPORT = QualityReport(
    ORIGINAL,
    (
        row("int8", 3.418, 0.00081, 0.988, 41.2, 410.0, 0.93, size=7_100_000),
        row("nf4", 3.60, 0.031, 0.931, 121.2, 710.0, 0.71, size=4_900_000),
        row("nf4-double", 3.607, 0.0334, 0.928, 101.2, 690.0, 0.75, size=4_800_000),
        row("awq", 3.55, 0.021, 0.945, 282.1, 1210.0, 0.51, size=4_950_000),
        QualityRow(ModelSpec("demo", "torchao-int8"), "torchao-int8", "auto", error="torchao is not installed"),
        row("none", 3.413, 0.00004, 0.998, 232.1, 1010.0, 0.44, size=10_158_080),
    ),
    "stories", 2048, 512, "CPU, 2 cores",
)  # fmt: skip
