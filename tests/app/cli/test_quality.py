"""batchscope quantize and batchscope quality, as a person meets them."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.__main__ import main, parser
from app.cli.quality import asked_for, text
from engine import InvalidInput, ModelSpec
from engine.config import OF_LAYERS, missing
from engine.quality import QualityReport, QualityRow
from tests.engine.tiny_models import _llama_like, save_tiny_model

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_tiny_model(_llama_like("Llama", hidden_size=128, std=0.12), folder)
    return folder


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkpoint that the command made, and what it printed."""
    out = tmp_path_factory.mktemp("made") / "model-awq"
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", printed)
        status = main(
            ["quantize", str(model), "--to", "awq", "--calibration", "calibration-stories", "--out", str(out)]
            + ["--group", "64", "--samples", "4", "--length", "64"]
        )
    assert status == 0
    return out, printed.getvalue()


def test_quantize_makes_a_checkpoint_and_says_how_to_go_on(made: tuple[Path, str]) -> None:
    out, printed = made
    assert json.loads((out / "config.json").read_text())["quantization_config"]["group_size"] == 64
    assert f"--model {out}" in printed
    assert "before" in printed


def test_quality_as_json_holds_every_figure_of_a_checkpoint_made_here(
    made: tuple[Path, str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It knows by itself what the checkpoint was made of."""
    status = main(
        ["quality", "--model", str(made[0]), "--quantizations", "awq,bfloat16", "--text", "prose", "--tokens", "100"]
        + ["--json"]
    )
    assert status == 0
    report = QualityReport.from_json(json.loads(capsys.readouterr().out))
    assert report.original.spec.source == str(model)
    assert [(row.quantization, row.dtype) for row in report.rows] == [("awq", "bfloat16"), ("none", "bfloat16")]
    awq, rounded = report.rows
    assert awq.divergence > rounded.divergence > 0
    assert report.tokens == 100


def report_of(*rows: QualityRow) -> QualityReport:
    original = QualityRow(ModelSpec("demo"), "none", "float32", 2.0, weight_bytes=22_033_408, rate=200.0)
    return QualityReport(original, rows, "stories", 2048, 512, "a processor, 2 threads")


ROW = QualityRow(ModelSpec("demo", "nf4"), "nf4", "bfloat16", 2.1, 0.0123, 0.9449, 180.0, 600.0, 0.4, 4_088_960)


def test_the_table_has_a_line_for_each_and_says_what_failed() -> None:
    failed = QualityRow(ModelSpec("demo", "int8"), "int8", "auto", error="bitsandbytes is not installed")
    printed = text(report_of(ROW, failed))
    assert "2,048 tokens of stories" in printed
    line = next(line for line in printed.splitlines() if line.startswith("nf4"))
    assert line.split() == "nf4 2.100 +5.0 % 0.0123 94.4 % 180 600 400 ms 3.9 MB".split()
    assert printed.splitlines()[-1] == "int8 failed: bitsandbytes is not installed"
    widths = {len(line) for line in printed.splitlines()[2:5]}
    assert len(widths) == 1, "columns stand below each other"


def test_all_means_every_quantization_that_can_be_had_here() -> None:
    original, specs, caches = asked_for(ModelSpec("demo"), None, "all")
    assert caches == ["int8", "fp8"]
    assert original == ModelSpec("demo")
    names = [spec.quantization for spec in specs]
    assert set(names) == {name for name in OF_LAYERS if not missing(name)}
    assert replace(specs[-1], dtype="auto") == original, "the original rounded to bfloat16"
    _, others, _ = asked_for(ModelSpec("demo-draft"), None, "all")
    assert "awq" not in [spec.quantization for spec in others]


def test_of_an_awq_checkpoint_the_original_is_what_is_quantized_otherwise(made: tuple[Path, str], model: Path) -> None:
    spec = ModelSpec(str(made[0]))
    original, specs, _ = asked_for(spec, None, "awq,nf4")
    assert original.source == str(model)
    assert specs == [spec, ModelSpec(str(model), "nf4")]
    assert asked_for(spec, "demo", "nf4")[0] == ModelSpec("demo")


def test_against_another_original_it_is_still_the_model_that_is_quantized() -> None:
    model, other = ModelSpec("demo"), ModelSpec("demo-draft")
    found = asked_for(model, other.source, "none,nf4,kv-fp8,awq,float16,kv-fp8")
    assert found == (
        other,
        [
            model,
            replace(model, quantization="nf4"),
            replace(model, quantization="awq"),
            replace(model, dtype="float16"),
        ],
        ["fp8"],
    )


def test_a_checkpoint_that_does_not_say_what_it_was_made_of_needs_the_original(
    made: tuple[Path, str], tmp_path: Path
) -> None:
    for path in made[0].iterdir():
        if path.name != "quantized_from.json":
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(InvalidInput, match="give --original"):
        asked_for(ModelSpec(str(tmp_path)), None, "awq")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quality", "--model", "/no/such"], ["/no/such", "check the path"]),
        (["quality", "--quantizations", "int3"], ["'int3'", "nf4", "bfloat16"]),
        (["quality", "--quantizations", ","], ["','", "names none", "nf4"]),
        (["quality", "--text", "no-such"], ["'no-such'", "stories, prose"]),
        (["quality", "--original", "/no/such"], ["/no/such"]),
        (["quantize", "demo", "--out", str(HERE)], [f"out={HERE}", "not empty"]),
        (["quantize", "demo", "--out", "/tmp/none", "--group", "7"], ["group=7", "32, 64, 128"]),
        (["quantize", "demo", "--out", "/tmp/none", "--calibration", "/no/text"], ["'/no/text'", "No such file"]),
    ],
)
def test_a_mistake_is_one_clear_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(word in said for word in words)


def test_help_explains_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["quality", "--help"])
    out = capsys.readouterr().out
    assert "KL divergence" in out
    assert "negative log-likelihood" in out
