"""What adapters add to each kind of layer, and which are refused, with what would do."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import resources
from engine import InvalidInput, ModelSpec, Parallel
from engine.checkpoints.adapters import inspect_adapter
from engine.kernels.cpu.adapters import adapt, lay_out
from engine.kernels.cpu.calls import computes
from engine.models.loading import load
from tests.engine.adapters_case import ALL, added, linear_paths, merge, save_adapter

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


@pytest.mark.skipif(not computes(torch.float32), reason="no C compiler")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("widths", [[40], [64, 24, 24], [33, 7]], ids=str)
@pytest.mark.parametrize("rank", [3, 8, 16])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernel_equals_the_definition(dtype: torch.dtype, widths: list[int], rank: int, threads: int) -> None:
    """Rows of one adapter side by side, one alone, none; a depth and columns that no vector divides."""
    random = torch.Generator().manual_seed(rank)
    depth, columns, ids = 71, sum(widths), [0, 2, 2, 2, 2, 2, 1, 3, 0, 0, 3, 3, 1]
    drawn = [torch.randn(*size, generator=random) for size in ((len(ids), 2 * depth), (len(ids), columns))]
    down, up = (torch.randn(*s, generator=random) for s in ((3, len(widths) * rank, depth), (3, columns, rank)))
    wide, out, down, up = (x.to(dtype) for x in (*drawn, down / depth**0.5, up))
    x = wide[:, :depth]  # rows with gaps
    expected = out.double() + added(x, down, up, ids, widths)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        adapt(out, x, lay_out(down, up, widths), torch.tensor(ids))
    finally:
        torch.set_num_threads(before)
    assert (out.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of every linear layer of the demo model, with a scale of its own."""
    sizes = linear_paths(resources.path("models/stories-5m"), ALL)
    return save_adapter(tmp_path_factory.mktemp("adapter") / "a", sizes, 6, 0, 0.05, lora_alpha=15)


@pytest.mark.parametrize("quantization", ["none", "int8", "int8-plain", "nf4", "nf4-double", "torchao-int8", "awq"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_kind_of_layer_adds_b_a_x(quantization: str, dtype: str, adapter: Path) -> None:
    spec = ModelSpec("demo", quantization, dtype, "cpu", adapters=(f"one={adapter}",))
    model = load(spec)
    assert model.adapters is not None
    assert model.card.adapter_bytes == model.adapters.bytes > 0
    from safetensors.torch import load_file

    tensors = load_file(adapter / "adapter_model.safetensors")
    with torch.inference_mode():
        for name in ALL:
            path = f"model.layers.2.{'self_attn' if name in ALL[:4] else 'mlp'}.{name}"
            layer: Any = model.module.get_submodule(path)
            x = torch.randn(5, layer.in_features, generator=torch.Generator().manual_seed(1)).to(model.dtype)
            plain, adapted = [], []
            for ids, to in ((None, plain), (torch.tensor([1, 0, 1, 1, 0]), adapted)):
                model.adapters.ids = ids
                to.append(layer(x.clone()).double())
            a, b = (tensors[f"base_model.model.{path}.lora_{letter}.weight"].double() for letter in "AB")
            expected = plain[0] + x.double() @ a.T @ b.T * (15 / 6) * torch.tensor([1, 0, 1, 1, 0])[:, None]
            off = (adapted[0] - expected).abs().max() / expected.abs().max()
            assert off <= (1e-5 if dtype == "float32" else 2e-2), (path, off)
            assert torch.equal(adapted[0][[1, 4]], plain[0][[1, 4]]), "rows of no adapter are as they were"
            assert (adapted[0] - plain[0])[[0, 2, 3]].abs().max() > 0.05


def test_scales_as_peft_writes_them(tmp_path: Path) -> None:
    sizes = {"model.layers.0.self_attn.q_proj": (64, 32), "model.layers.1.mlp.up_proj": (96, 32)}

    def scales(**config: Any) -> list[float]:
        return [
            pair.scale for pair in inspect_adapter(str(save_adapter(tmp_path, sizes, 4, 0, **config))).pairs.values()
        ]

    assert scales(lora_alpha=8) == [2.0, 2.0]
    assert scales(lora_alpha=8, use_rslora=True) == [4.0, 4.0]
    assert scales(lora_alpha=8, alpha_pattern={"up_proj": 2}) == [2.0, 0.5]
    assert scales(lora_alpha=8, alpha_pattern={"up_proj": 0}) == [2.0, 0.0]
    assert scales(lora_alpha=8, bias=None, use_dora=None, init_lora_weights="gaussian") == [2.0, 2.0]
    assert scales(lora_alpha=8, alpha_pattern={"layers.0.self_attn.q_proj": 12}) == [3.0, 2.0]
    with pytest.raises(InvalidInput, match="alpha_pattern has the regular expression"):
        scales(alpha_pattern={".*up_proj": 2})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"peft_type": "IA3"}, "of the kind 'IA3'; LoRA alone is computed"),
        ({"bias": "all"}, "trains biases, which is not computed here; merge it into the model"),
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "replaces whole layers"),
        ({"lora_alpha": "much"}, "lora_alpha='much' is no number"),
        ({"lora_alpha": float("nan")}, "lora_alpha=nan is no number"),
        ({"lora_alpha": 10**400}, "lora_alpha=1000.* is no number"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa' changes the weights that it is added to"),
        ({"alora_invocation_tokens": [1]}, "aLoRA"),
    ],
)
def test_what_is_no_plain_lora_is_refused(config: dict[str, Any], says: str, tmp_path: Path) -> None:
    save_adapter(tmp_path / "a", {"model.layers.0.self_attn.q_proj": (64, 32)}, 4, 0, **config)
    with pytest.raises(InvalidInput, match=f"adapter a: .*{says}"):
        inspect_adapter(str(tmp_path / "a"))


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"model.layers.9.self_attn.q_proj": (256, 256)}, "the model has no layer model.layers.9.* made for a model"),
        ({"model.layers.0.self_attn.q_proj": (64, 256)}, "of 256 by 64 at .*q_proj, which is of 256 by 256 here"),
        ({"lm_head": (3072, 256)}, "lm_head is the output layer or the embedding"),
        ({"model.layers.0.mlp.act_fn": (3, 4)}, "which is no linear layer here"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(sizes: dict, says: str, tmp_path: Path) -> None:
    save_adapter(tmp_path / "a", sizes, 4, 0)
    for parallel in (Parallel(), Parallel(pipeline=2)):
        with pytest.raises(InvalidInput, match=f"adapter a: .*{says}"):
            load(ModelSpec("demo", device="cpu", adapters=(str(tmp_path / "a"),), parallel=parallel))


def test_files_that_are_missing_or_broken_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such folder; give the folder of one, or a name of those that"):
        inspect_adapter("nothing/here")
    with pytest.raises(InvalidInput, match=r"has no adapter_config\.json"):
        inspect_adapter(str(tmp_path))
    folder = save_adapter(tmp_path / "a", {"model.layers.0.self_attn.q_proj": (64, 32)}, 4, 0)
    weights = folder / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(InvalidInput, match="is cut short"):
        inspect_adapter(str(folder))
    weights.unlink()
    (folder / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"can run any code when opened.*save it as safetensors"):
        inspect_adapter(str(folder))
    (folder / "adapter_config.json").write_text(json.dumps([]))
    weights.write_bytes(whole)
    with pytest.raises(InvalidInput, match="of the kind no table"):
        inspect_adapter(str(folder))


def test_values_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    sizes = {"model.layers.0.self_attn.q_proj": (256, 256)}
    folder = save_adapter(tmp_path / "a", sizes, 4, 0, spread=float("inf"))
    with pytest.raises(InvalidInput, match=r"adapter a: B of .*q_proj has values that are NaN or infinite"):
        load(ModelSpec("demo", device="cpu", adapters=(str(folder),)))


def test_what_a_dtype_cannot_hold_is_refused_and_so_are_ranks_that_nothing_computes(tmp_path: Path) -> None:
    sizes = {"model.layers.0.self_attn.q_proj": (256, 256)}
    folder = save_adapter(tmp_path / "a", sizes, 4, 0, spread=1e3, lora_alpha=4000)
    load(ModelSpec("demo", dtype="float32", device="cpu", adapters=(str(folder),)))
    with pytest.raises(InvalidInput, match=r"a: .*q_proj has values, times its scale, that torch\.float16 cannot"):
        load(ModelSpec("demo", dtype="float16", device="cpu", adapters=(str(folder),)))
    high = save_adapter(tmp_path / "high", sizes, 400, 0)
    with pytest.raises(InvalidInput, match="adapter high: of q_proj, k_proj, v_proj its rank is 400; 341 at most"):
        load(ModelSpec("demo", device="cpu", adapters=(str(folder), str(high))))


def test_rows_that_nobody_told_the_adapters_of_are_no_step(adapter: Path) -> None:
    model = load(ModelSpec("demo", device="cpu", adapters=(str(adapter),)))
    assert model.adapters is not None
    model.adapters.ids = torch.ones(3, dtype=torch.long)
    layer: Any = model.module.get_submodule("model.layers.0.mlp.down_proj")
    with torch.inference_mode(), pytest.raises(RuntimeError, match="a layer with adapters has 5 rows of 3 tokens"):
        layer(torch.zeros(5, layer.in_features, dtype=model.dtype))


def test_names(tmp_path: Path) -> None:
    assert ModelSpec(adapters=("x=/some/where", "/other/pirate")).adapter_names == ("x", "pirate")
    for given, says in (
        (("a/x", "b/x"), "another one is called x: give it as NAME=FOLDER"),
        (("my name=b",), "its name must be of letters"),
        (("x=",), "its name must be of letters"),
        ((3,), "must be folders of adapters"),
    ):
        with pytest.raises(InvalidInput, match=says):
            ModelSpec(adapters=given)


def test_a_merged_model_says_the_same_as_peft_does(adapter: Path, tmp_path: Path) -> None:
    """The reference of the other tests, against the definition: the sum of a weight and B A times the scale."""
    folder = resources.path("models/stories-5m")
    merged = load(ModelSpec(str(merge(folder, adapter, tmp_path / "m", 15 / 6)), dtype="float32", device="cpu"))
    model = load(ModelSpec("demo", "none", "float32", "cpu", adapters=(str(adapter),)))
    assert model.adapters is not None
    ids = torch.arange(40, 60)[None]
    from engine.models.fusion.fuse import Causal

    with torch.inference_mode():
        model.adapters.ids = torch.ones(20, dtype=torch.long)
        found, expected = (
            each.module(input_ids=ids, position_ids=torch.arange(20)[None], use_cache=False, batch=Causal()).logits
            for each in (model, merged)
        )
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
