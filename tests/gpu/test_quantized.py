"""Quantized models on the GPU that is here: the same tokens in every batching mode, and the logits of a CPU's."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.bench.bars import no_bars
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.config import MODES, OF_LAYERS, missing
from engine.models.loading import load
from engine.models.weight_count import held_bytes
from tests.engine.core.test_exactness import prompts
from tests.engine.fusing_case import JOINED, all_kernels, difference, logits
from tests.engine.tiny_models import TINY_MODELS, save_tiny_model

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

GREEDY = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)
EXACT = [name for name in OF_LAYERS if name != "int8"]  # its outliers depend on the batch
HEAD = 1  # which no quantizer takes, and whose single row is our kernel's
Folder = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("quantized")

    def of(name: str, quantization: str) -> Path:
        if missing(quantization):
            pytest.skip(missing(quantization))
        plain, awq = root / name, root / f"{name} awq"
        with no_bars():
            if not plain.exists():
                save_tiny_model(TINY_MODELS[name], plain)
            if quantization == "awq" and not awq.exists():
                save_rounded_awq(plain, awq, group=32)
        return awq if quantization == "awq" else plain

    return of


def said(path: Path, quantization: str, dtype: str, device: str, modes: tuple[str, ...]) -> dict[str, list[list[int]]]:
    found = {}
    with Engine(ModelSpec(str(path), quantization, dtype, device), EngineConfig(max_running=4)) as engine:
        assert engine.card.quantization == quantization
        assert engine.card.device.startswith(device)
        for mode in modes:
            engine.begin(EngineConfig(mode, 4, 32, block_size=4, longest_wait=0.01))
            streams = [engine.submit(prompt, GREEDY) for prompt in prompts()]
            found[mode] = [list(stream.result(timeout=120).token_ids) for stream in streams]
    return found


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("quantization", EXACT)
def test_in_float32_every_mode_gives_the_same_tokens(quantization: str, name: str, folder: Folder) -> None:
    found = said(folder(name, quantization), quantization, "float32", "cuda", tuple(MODES))
    assert len({token for tokens in found["sequential"] for token in tokens}) >= 10
    assert all(tokens == found["sequential"] for tokens in found.values())


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize("quantization", ["none", "nf4", "nf4-double", "awq", "torchao-int8"])
def test_in_float32_the_tokens_are_those_of_a_cpu(quantization: str, name: str, folder: Folder) -> None:
    """Not so of int8, which rounds what is multiplied as well: the last bit of a sum may move it to the next code."""
    path = folder(name, quantization)
    on_gpu = said(path, quantization, "float32", "cuda", ("continuous",))
    assert on_gpu == said(path, quantization, "float32", "cpu", ("continuous",))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("quantization", OF_LAYERS)
def test_in_16_bits_logits_are_those_of_float32_but_for_rounding(quantization: str, dtype: str, folder: Folder) -> None:
    """What is quantized at load is rounded to 16 bits before, which moves weights near a border to the next code."""
    path, ids = folder("llama", quantization), torch.tensor([prompts()[3]])
    found = []
    for device, of in (("cuda", dtype), ("cpu", "float32")):
        model = load(ModelSpec(str(path), quantization, of, device))
        model.module.set_attn_implementation("eager")
        with torch.inference_mode():
            found.append(model.module(ids.to(device)).logits[0].float().cpu())
    error = (found[0] - found[1]).norm() / found[1].norm()
    assert error < (0.04 if quantization in ("none", "awq") else 0.25)


@pytest.mark.parametrize("quantization", ["awq", "nf4", "int8", "int8-plain"])
def test_packed_layers_of_one_input_are_one_product_and_can_be_undone(quantization: str, folder: Folder) -> None:
    model = load(ModelSpec(str(folder("llama", quantization)), quantization, "bfloat16", "cuda"))
    assert model.fusion is not None
    alone = 4 if quantization == "nf4" else 0  # of layers of one input each, whose few rows are our kernel's too
    assert all_kernels(model.fusion)["product"] == JOINED["llama"] + alone + HEAD, model.fusion.text
    held, after = held_bytes(model.module), logits(model.module)
    model.fusion.undo()
    assert held_bytes(model.module) == held
    assert difference(after, logits(model.module)) < 5e-2


@pytest.mark.parametrize("quantization", OF_LAYERS)
def test_the_gpu_holds_the_bytes_that_the_card_tells(quantization: str, folder: Folder) -> None:
    path = folder("llama", quantization)
    load(ModelSpec(str(path), quantization, "bfloat16", "cuda"))  # kernels and workspaces come with the first
    gc.collect()  # what of it is left in circles of objects would go while the second one loads
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    model = load(ModelSpec(str(path), quantization, "bfloat16", "cuda"))
    assert model.card.weight_bytes == held_bytes(model.module)
    gc.collect()
    taken = torch.cuda.memory_allocated() - before
    tensors = 2 * sum(1 for _ in model.module.modules()) + 40  # each rounded up to 512 bytes
    assert model.card.weight_bytes <= taken + 4096
    assert taken <= model.card.weight_bytes + 2 * 512 * tensors


@pytest.mark.parametrize("quantization", ["none", "nf4", "awq"])
def test_a_load_that_fails_leaves_the_gpus_memory_as_it_was(quantization: str, folder: Folder) -> None:
    spec = ModelSpec(str(folder("llama", quantization)), quantization, "bfloat16", "cuda")
    Engine(spec, EngineConfig(max_running=4)).close()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    with pytest.raises(Exception, match="kv_memory") as kept:
        Engine(spec, EngineConfig(max_running=4, kv_memory=1))
    assert kept.value is not None
    assert torch.cuda.memory_allocated() <= before
