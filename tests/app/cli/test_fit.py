"""`batchscope fit`, as a person meets it."""

import json
import shutil
from pathlib import Path

import pytest

import resources
from app.__main__ import main
from app.session.memory.estimate import empty, estimate, room
from engine import InvalidInput, ModelSpec
from engine.checkpoints import inspect_model
from engine.config import OF_LAYERS
from engine.memory import fits


def test_the_table_has_a_row_a_quantization_and_what_a_person_asks_of_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fit", "demo", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "demo stories 5M"
    rows = {line.split()[0]: line for line in lines if line}
    for name in OF_LAYERS:
        assert name in rows
    assert rows["nf4"].endswith("fits") or "not installed" in rows["nf4"]
    text = "\n".join(lines)
    for words in (
        "requests of 1,024", "KV a token", "2 · bytes · layers · d_model · length · batch says 12 MB",
        "8 query heads share the keys and values of 4", "parameters: 5,508,352", "context: 1,024 tokens",
        "LlamaForCausalLM, served", "chat template: yes", "licence:",
    ):  # fmt: skip
        assert words in text
    assert max(map(len, lines)) < 160


def test_the_same_as_json_is_what_the_engine_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--json", "--length", "256", "--dtype", "bfloat16", "--device", "cpu"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"]["parameters"] == 5_508_352
    assert told["model"]["unsupported"] == ""
    assert [row["quantization"] for row in told["fits"]] == list(OF_LAYERS)
    for row, bill in zip(told["fits"], fits(inspect_model("demo"), room("cpu"), dtype="bfloat16"), strict=True):
        assert (row["weights"], row["kv_token"], row["dtype"]) == (bill.weights, bill.kv_token, "bfloat16")
        assert row["requests"] == row["tokens"] // 256
        assert row["simple_kv_token"] == 2 * row["kv_token"]  # 8 heads on 4


def test_a_device_that_is_not_here_is_told_of_as_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "demo", "--on", "4090", "--length", "512"]) == 0
    text = capsys.readouterr().out
    assert "RTX 4090, as its maker publishes it: 24 GB at 1,008 GB/s, 165.2 TFLOP/s in bfloat16" in text
    assert max(map(len, text.splitlines())) < 160
    assert main(["fit", "demo", "--on", "4090", "--length", "512", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["on"]["name"] == "RTX 4090"
    row = told["fits"][0]
    assert row["most_tokens_alone"] == pytest.approx(1.008e12 / (row["weights"] + 512 * row["kv_token"]))
    assert row["most_tokens_alone"] < row["most_tokens_together"] < 64 * row["most_tokens_alone"]
    assert f"≤ {row['most_tokens_alone']:,.0f}" in text


def test_a_gpu_that_is_not_here_has_a_price(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fit", "demo", "--on", "H100", "--price", "2.5"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "a million of these tokens, at 2.5 an hour" in text
    assert main([*arguments, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["fits"][0]
    assert row["least_cost_alone"] == pytest.approx(2.5 / 3600 / row["most_tokens_alone"] * 1e6)
    assert f"≥ {row['least_cost_together']:.3g}" in text


def test_a_model_that_is_not_served_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    shutil.copytree(resources.path("models/stories-5m"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bloom", "num_key_value_heads": 8}))
    assert main(["fit", str(folder), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "not served: model type 'bloom' does not use transformers' attention interface" in out
    assert "every query head has keys and values of its own" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "/no/such/folder"], "/no/such/folder: check the path"),
        (["fit", "nonsense"], "no model 'nonsense'"),
        (["fit", "--device", "toaster"], "device='toaster'"),
        (["fit", "--on", "abacus"], "'abacus' is no device whose figures are known here; choose among RTX 3090"),
        (["fit", "--on", "H100", "--device", "cpu"], "--on H100: another device than --device cpu"),
        (["fit", "--price", "2"], "--price 2: it is of a GPU that is not here; name it with --on"),
        (["fit", "--on", "H100", "--price", "-1"], "price=-1: it is of an hour, a number of at least 0"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_a_hub_that_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert main(["fit", "owner/name", "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert "hub" in error
    assert len(error.strip().splitlines()) == 1


# What the window asks.


def test_the_estimate_is_the_bill_of_the_quantization_chosen() -> None:
    plain, packed = (estimate(ModelSpec("demo", name, device="cpu")) for name in ("none", "nf4"))
    assert packed.weights < plain.weights / 4
    assert plain.fits
    assert plain.facts == ("KV 6 KB a token · context 1,024", "5.5 M parameters in float32")
    assert packed.facts == ("KV 3 KB a token · context 1,024", "5.5 M parameters in bfloat16")
    assert plain.total == room("cpu").total == empty("cpu").total
    with pytest.raises(InvalidInput, match="check the path"):
        estimate(ModelSpec("/no/such/folder"))
