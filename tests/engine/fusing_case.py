"""What is fused of each tiny model, and the check that it changes no more than rounding and can be undone."""

import sys
from collections import Counter

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.models.card import serve_with_paged_attention
from engine.models.fusion.fuse import Causal, Fusion, fuse
from engine.models.fusion.kernels import kernels_for
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, make_tiny_model

FUSED: dict[str, dict[str, int]] = {
    "llama": {"norm": 5, "gate": 2, "rotation": 2},
    "llama wide heads": {"norm": 5, "gate": 2, "rotation": 2},
    "qwen2": {"norm": 5, "gate": 2, "rotation": 2},
    "qwen3": {"norm": 9, "gate": 2, "rotation": 2},
    "mistral": {"norm": 5, "gate": 2, "rotation": 2},
    "gemma2": {"norm": 9, "gate": 2, "rotation": 2},
    "gemma3": {"norm": 19, "gate": 3, "rotation": 3},
    "phi3": {"norm": 5, "gate": 2, "rotation": 2},
    "olmo2": {"norm": 9, "gate": 2, "rotation": 2},
    "mixtral": {"norm": 5, "rotation": 2},
    "qwen3 moe": {"norm": 9, "rotation": 2},
    "starcoder2": {"rotation": 2},  # LayerNorm, and an MLP without a gate
    "granite": {"norm": 5, "gate": 2, "rotation": 2},
    "smollm3": {"norm": 5, "gate": 2, "rotation": 1},  # the other layer has no positions
    "cohere": {"gate": 2},  # norms that subtract the mean, and other pairs turned
    "gpt-oss": {"norm": 5, "rotation": 2},
    "glm4": {"norm": 9, "gate": 2},  # half of each head turned, in other pairs
    "deepseek-v3": {"norm": 9, "gate": 2, "rotation": 2},
    "gpt2": {},
    "gpt-neox": {},
    "opt": {},
}
# Layers whose product is joined with others' on a GPU: all in float32 and halves.
JOINED = dict.fromkeys("llama|llama wide heads|qwen2|qwen3|mistral|gemma2|olmo2|granite|smollm3|cohere".split("|"), 10)
JOINED |= dict.fromkeys(("mixtral", "qwen3 moe", "starcoder2", "gpt-oss", "glm4", "opt"), 6)
JOINED |= {"gemma3": 15, "deepseek-v3": 8}
# Layers whose additions are fused with norms there.
LAYERS = dict.fromkeys("llama|llama wide heads|qwen2|qwen3|mistral|gemma2|smollm3".split("|"), 2)
LAYERS |= dict.fromkeys(("mixtral", "qwen3 moe", "gpt-oss", "deepseek-v3"), 2) | {"gemma3": 3}
# Whose cosines and sines a kernel computes on a CPU.
ANGLES = {name for name in FUSED if name not in ("cohere", "gpt-oss", "gpt2", "opt")}
# Attentions, and norms of heads, that are put off there to where keys are kept.
PLACED = {name: of["rotation"] for name, of in FUSED.items() if "rotation" in of and name != "deepseek-v3"}
PLACED |= {"qwen3": 6, "qwen3 moe": 6, "gemma3": 9}
# Layers with experts, and routers of theirs, that are ours there.
EXPERTS = dict.fromkeys(("mixtral", "qwen3 moe"), 2) | {"deepseek-v3": 1}
ROUTERS = dict.fromkeys(("mixtral", "qwen3 moe", "gpt-oss"), 2)
LOGITS = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}  # of their spread


def served(
    name: str, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0, layers: int | None = None
) -> PreTrainedModel:
    """A tiny model with our attention set; with `layers` of its layers, or all."""
    module = make_tiny_model(TINY_MODELS[name], seed, layers).to(device, dtype)
    serve_with_paged_attention(module, module.device)
    return module


@torch.inference_mode()
def logits(module: PreTrainedModel) -> Tensor:
    ids = torch.randint(VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(3)).to(module.device)
    positions = torch.arange(5, 10, device=module.device)[None]
    return module(input_ids=ids, position_ids=positions, use_cache=False, batch=Causal()).logits


def classes(module: PreTrainedModel) -> list[type]:
    return [type(part) for part in module.modules()]


def by_kernel(fusion: Fusion) -> Counter[str]:
    """Those that CPUs have too."""
    count = all_kernels(fusion)
    for kernel in ("product", "residual", "placing", "gated product", "experts", "router"):
        del count[kernel]
    return count


def all_kernels(fusion: Fusion) -> Counter[str]:
    count: Counter[str] = Counter()
    for (_, kernel), parts in fusion.fused.items():
        count[kernel] += parts
    return count


def difference(after: Tensor, before: Tensor) -> float:
    return float((after.double() - before.double()).norm() / before.double().std() / before.numel() ** 0.5)


def check_fused(name: str, dtype: torch.dtype, device: str = "cpu", more: dict[str, int] | None = None) -> None:
    """Fails unless what is expected is fused, nothing else changes, and undoing gives the same bits as before."""
    module, other = served(name, dtype, device), served(name, dtype, device, seed=1)
    code = sys.modules[type(module).__module__]
    held = dict(vars(code))
    before, others, own = logits(module), logits(other), classes(module)

    fusion = fuse(module)
    assert by_kernel(fusion) == FUSED[name] | (more or {}), fusion.text
    kernels = kernels_for(device, dtype)
    if kernels is not None and kernels.on_gpu:
        on_gpu = {"product": JOINED.get(name, 0), "residual": LAYERS.get(name, 0), "placing": PLACED.get(name, 0)}
        on_gpu |= {"experts": EXPERTS.get(name, 0), "router": ROUTERS.get(name, 0)}
        if dtype is not torch.float32:
            on_gpu["product"] = own.count(nn.Linear)  # those that are not joined, too
            on_gpu["gated product"] = FUSED[name].get("gate", 0)
        assert all_kernels(fusion) == FUSED[name] | {kernel: count for kernel, count in on_gpu.items() if count}
    assert not fusion.undone
    assert (classes(module) != own) == bool(fusion.fused)
    assert difference(logits(module), before) <= LOGITS[dtype]

    assert {key: value for key, value in vars(code).items() if value is not held.get(key)} == {}
    assert classes(other) == own
    assert torch.equal(logits(other), others)

    fusion.undo()
    assert classes(module) == own
    assert not any("forward" in vars(part) for part in module.modules())
    assert torch.equal(logits(module), before)
