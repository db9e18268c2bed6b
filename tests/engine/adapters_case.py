"""Random adapters in the files that PEFT writes, and what a model is with one of them merged into its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.bench.random_adapters import PREFIX as PREFIX
from engine.bench.random_adapters import save_adapter as save_adapter

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def added(x: Tensor, down: Tensor, up: Tensor, ids: Sequence[int], widths: Sequence[int]) -> Tensor:
    """What adapters add by definition, in float64: `down` and `up` as `Adapted` has them."""
    rank, rows = up.shape[2], []
    for row, number in zip(x.double(), ids, strict=True):
        low = (down[number - 1].double() @ row).split(rank)
        parts = up[number - 1].double().split(list(widths))
        whole = torch.cat([part @ one for part, one in zip(parts, low, strict=True)])
        rows.append(whole if number else torch.zeros_like(whole))
    return torch.stack(rows)


def check_kernels(adapt: Any, lay_out: Any, dtype: torch.dtype, device: str, size: tuple[int, list[int], int]) -> None:
    """Against the definition: more rows than a tile has, of one adapter, of several, of none; of `size`, a depth, the
    widths of layers, a rank."""
    depth, widths, rank = size
    random = torch.Generator().manual_seed(rank)
    ids = [0, 2, 2, 1, 3, 0, 0, 3, *[0] * 8, *[2] * 16, 1, 0]
    columns = sum(widths)
    drawn = [torch.randn(*size, generator=random) for size in ((len(ids), 2 * depth), (len(ids), columns))]
    down, up = (torch.randn(*s, generator=random) for s in ((3, len(widths) * rank, depth), (3, columns, rank)))
    wide, out, down, up = (x.to(dtype).to(device) for x in (*drawn, down / depth**0.5, up / rank**0.5))
    x, before = wide[:, :depth], out.clone()  # rows with gaps
    expected = (out.cpu().double() + added(x.cpu(), down.cpu(), up.cpu(), ids, widths)).to(device)
    adapt(out, x, lay_out(down, up, widths), torch.tensor(ids, device=device))
    off = (out.double() - expected).abs().max() / expected.abs().max()
    assert off <= {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}[dtype]
    assert torch.equal(out[0], before[0]), "a row of no adapter is as it was"


def linear_paths(folder: Path, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a checkpoint's linear layers of these names, by their paths."""
    module = AutoModelForCausalLM.from_pretrained(folder)
    found = {path: part for path, part in module.named_modules() if path.rpartition(".")[2] in names}
    return {path: (part.out_features, part.in_features) for path, part in found.items() if isinstance(part, nn.Linear)}


def merge(folder: Path, adapter: Path, to: Path, scale: float = 1.0) -> Path:
    """The checkpoint with B A times `scale` added to the weights of its layers."""
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name, a in tensors.items():
        if ".lora_A." in name:
            weight = module.get_submodule(name.removeprefix(PREFIX).split(".lora_A.")[0]).weight
            weight.data += tensors[name.replace("lora_A", "lora_B")].float() @ a.float() * scale
    module.save_pretrained(to)
    AutoTokenizer.from_pretrained(folder).save_pretrained(to)
    return to
