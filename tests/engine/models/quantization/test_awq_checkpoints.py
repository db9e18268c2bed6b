"""Checkpoints that autoawq made load into our layers exactly; a contradiction in one is an error before it is read."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine.checkpoints.awq_settings import AwqSettings, awq_settings
from engine.checkpoints.safetensors import read_headers, weight_files
from engine.config.specs import InvalidInput
from engine.kernels.cpu.library import native
from engine.models.packed_linear import pack_linears
from engine.models.quantization.awq_linear import AwqLinear, make_ready
from engine.models.quantization.awq_loader import awq_arguments
from engine.models.quantization.coded_linear import CodedLinear
from tests.commands import ended
from tests.engine.models.quantization.make_awq import GROUP, LOADED, SCALED
from tests.engine.models.quantization.scalar_awq import decode

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("awq") is None:  # not imported here: it changes the filter of warnings
        pytest.skip("autoawq is not installed")
    folder = tmp_path_factory.mktemp("awq")
    run = ended(["tests.engine.models.quantization.make_awq", str(folder)])
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.enable_progress_bar()
    transformers.logging.set_verbosity(level)


def settings_of(folder: Path) -> AwqSettings:
    settings = awq_settings(json.loads((folder / "config.json").read_text()))
    assert settings is not None
    return settings


def load(folder: Path, dtype: torch.dtype) -> Any:
    """The model as it was stored, not ready yet; nothing missing, nothing left over."""
    shapes = {name: shape for name, (shape, _) in read_headers(weight_files(folder)).items()}
    arguments = awq_arguments(AutoConfig.from_pretrained(folder), settings_of(folder), shapes)
    model, loading = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **arguments)
    assert not any(loading.values()), loading
    return model.eval()


def decoded(folder: Path) -> dict[str, Tensor]:
    """The checkpoint's tensors with its packed weights read by the scalar decoder."""
    stored = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in stored.items() if not name.endswith(("qweight", "qzeros", "scales"))}
    for name in stored:
        if name.endswith(".qweight"):
            path = name.removesuffix(".qweight")
            weights[f"{path}.weight"] = decode(*(stored[f"{path}.{part}"] for part in ("qweight", "qzeros", "scales")))
    return weights


def dense_model(folder: Path) -> Any:
    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.load_state_dict(decoded(folder), strict=True)
    return model


def logits(model: Any) -> Tensor:
    ids = torch.randint(3, 3000, (2, 23), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return model(ids, use_cache=False).logits.float()


@pytest.mark.parametrize("name", LOADED)
def test_logits_equal_those_of_the_scalar_decoders_weights(made: Path, name: str) -> None:
    model = load(made / name, torch.float32)
    packed = [path for path, part in model.named_modules() if isinstance(part, AwqLinear)]
    assert packed
    assert {path.rpartition(".")[2] for path in packed} <= set(PROJECTIONS)
    make_ready(model, torch.float16)  # no kernel multiplies codes in it
    plain = dense_model(made / name)
    for path in packed:
        assert torch.equal(model.get_submodule(path).weight, plain.get_submodule(path).weight.half()), path
    exact, rounded = logits(plain), logits(plain.to(torch.bfloat16))
    if native().library is None:
        return
    for dtype, near in ((torch.float32, 1e-5 * exact.norm()), (torch.bfloat16, 2 * (rounded - exact).norm())):
        coded = load(made / name, dtype)
        scales = [part.scales for part in coded.modules() if isinstance(part, AwqLinear)]
        assert {scale.dtype for scale in scales} == {torch.float16}  # no rounding before they are used
        make_ready(coded, dtype)
        assert sum(isinstance(part, CodedLinear) for part in coded.modules()) == len(packed)
        pack_linears(coded)
        assert (logits(coded) - exact).norm() <= near


def test_the_models_tell_different_logits(made: Path) -> None:
    told = [logits(dense_model(made / name)) for name in ("llama", "qwen3")]
    assert (told[0].argmax(-1) != told[1].argmax(-1)).float().mean() > 0.9
    assert all(len(each.argmax(-1).unique()) > 10 for each in told)


def test_scaled_activations_are_refused_with_the_model_type(made: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'gpt_neox': .* scales activations too \(gpt_neox.layers.0.mlp.act.scales"):
        load(made / SCALED, torch.float32)


def changed(made: Path, folder: Path, change: Callable[[dict[str, Tensor]], Any], **config: Any) -> Path:
    """A copy of the Llama checkpoint with other tensors, and other settings of its quantization."""
    shutil.copytree(made / "llama", folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stored = json.loads((folder / "config.json").read_text())
    stored["quantization_config"].update(config)
    (folder / "config.json").write_text(json.dumps(stored))
    return folder


UP = "model.layers.1.mlp.up_proj"


def unpack_up(tensors: dict[str, Tensor]) -> None:
    tensors[f"{UP}.weight"] = decode(*(tensors.pop(f"{UP}.{part}") for part in ("qweight", "qzeros", "scales")))


def nothing(tensors: dict[str, Tensor]) -> None: ...


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        (nothing, {"group_size": 64}, "group_size=64, but the weights of .* hold groups of 32"),
        (nothing, {"group_size": -1}, "group_size=-1, but the weights of .* hold groups of 32"),
        (nothing, {"modules_to_not_convert": ["up_proj"]}, "up_proj is not quantized .*, but its weights are AWQ"),
        (unpack_up, {}, f"{re.escape(UP)} is AWQ, but its weights are not packed"),
        (lambda t: t.pop(f"{UP}.qzeros"), {}, f"{re.escape(UP)} have no qzeros"),
        (lambda t: t.update({f"{UP}.qweight": t[f"{UP}.qweight"][:, :-1].contiguous()}), {}, "another model's"),
        (lambda t: t.update({"model.new.qweight": t[f"{UP}.qweight"].clone()}), {}, "holds model.new as AWQ"),
    ],
)
def test_a_contradiction_between_config_and_weights_is_an_error(
    made: Path, tmp_path: Path, change: Callable[[dict[str, Tensor]], Any], config: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        load(changed(made, tmp_path / "changed", change, **config), torch.float32)


def test_layers_that_the_config_skips_stay_dense(made: Path, tmp_path: Path) -> None:
    folder = changed(made, tmp_path / "changed", unpack_up, modules_to_not_convert=["layers.1.mlp.up"])
    model = load(folder, torch.float32)
    assert type(model.get_submodule(UP)) is torch.nn.Linear
    make_ready(model, torch.float32)
    torch.testing.assert_close(logits(model), logits(dense_model(made / "llama")), rtol=1e-4, atol=1e-4)


def test_a_bias_is_loaded_in_the_models_dtype(made: Path) -> None:
    biases = [
        part.bias for part in load(made / "qwen2", torch.bfloat16).modules()
        if isinstance(part, AwqLinear) and part.bias is not None
    ]  # fmt: skip
    assert {bias.dtype for bias in biases} == {torch.bfloat16}
    assert len(biases) == 6


def test_the_group_is_autoawqs(made: Path) -> None:
    assert {settings_of(made / name).group for name in LOADED} == {GROUP}
