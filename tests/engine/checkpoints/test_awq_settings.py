"""AWQ of a kind that is not run here is refused by name, before anything is loaded."""

import re
from typing import Any

import pytest

from engine.checkpoints.awq_settings import AwqSettings, awq_settings, check_group, check_names, expert_of, holds_awq
from engine.config.specs import InvalidInput


def config(**quantization: Any) -> dict[str, Any]:
    return {"model_type": "llama", "quantization_config": {"quant_method": "awq", **quantization}}


def test_both_spellings_of_the_settings_are_read() -> None:
    skipped = ["gate", "visual"]
    new = config(bits=4, group_size=64, version="gemm", zero_point=True, modules_to_not_convert=skipped)
    old = config(w_bit=4, q_group_size=64, version="GEMM", zero_point=True, modules_to_not_convert=skipped)
    assert awq_settings(new) == awq_settings(old) == AwqSettings(64, ("gate", "visual"))


def test_what_a_config_leaves_out_is_autoawqs_default() -> None:
    assert awq_settings(config()) == AwqSettings(128)


def test_settings_of_the_text_model_count() -> None:
    assert awq_settings({"model_type": "x", "text_config": config(group_size=-1)}) == AwqSettings(-1)


@pytest.mark.parametrize(
    "other", [{}, {"quantization_config": None}, {"quantization_config": {"quant_method": "gptq"}}]
)
def test_a_model_that_awq_did_not_quantize_has_none(other: dict[str, Any]) -> None:
    assert awq_settings({"model_type": "llama", **other}) is None


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"bits": 8}, "bits=8: only 4 bits"),
        ({"version": "gemv"}, "version='gemv': only gemm"),
        ({"version": "Marlin"}, "version='marlin': only gemm"),
        ({"format": "llm-awq"}, "version='llm-awq': only gemm"),
        ({"zero_point": False}, "zero_point=False"),
        ({"group_size": 0}, "group_size=0"),
        ({"group_size": "128"}, "group_size='128'"),
        ({"modules_to_not_convert": "gate"}, "modules_to_not_convert='gate'"),
    ],
)
def test_settings_that_are_not_run_are_refused_by_their_value(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        awq_settings(config(**setting))


def test_skipped_layers_are_told_by_a_part_of_their_name() -> None:
    settings = AwqSettings(128, ("gate.", "visual"))
    assert settings.skips("model.layers.0.mlp.gate.linear")
    assert not settings.skips("model.layers.0.mlp.gate_proj")


def test_an_experts_weight_is_told_from_others_by_its_name() -> None:
    assert expert_of("model.layers.12.block_sparse_moe.experts.3.w3.qweight") == ("12", 3, "up")
    assert expert_of("model.layers.0.mlp.experts.127.down_proj.qweight") == ("0", 127, "down")
    for other in ("mlp.shared_experts.gate_proj", "mlp.experts.gate_up_proj", "mlp.experts.3.w9", "mlp.experts.w1"):
        assert expert_of(f"model.layers.0.{other}.qweight") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.layers.0.block_sparse_moe.experts.3.w7.qweight", "experts"),
        ("model.layers.0.mlp.act.scales", "scales activations"),
        ("model.layers.0.mlp.down_proj.weight", "not packed"),
    ],
)
def test_tensors_that_are_not_run_are_refused_with_the_reason(name: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_names([name], "mixtral")


def test_packed_weights_are_told_by_their_names() -> None:
    assert holds_awq(["a.weight", "b.qweight"])
    assert not holds_awq(["a.weight"])


def test_a_wrong_group_size_names_both() -> None:
    check_group(AwqSettings(32), "a", 128, 4)
    check_group(AwqSettings(-1), "a", 128, 1)
    with pytest.raises(InvalidInput, match=r"group_size=128, but the weights of a \(128 inputs\) hold groups of 32"):
        check_group(AwqSettings(128), "a", 128, 4)
    with pytest.raises(InvalidInput, match=r"group_size=32, but .* hold 3 groups"):
        check_group(AwqSettings(32), "a", 128, 3)
