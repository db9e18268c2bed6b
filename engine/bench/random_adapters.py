"""Random adapters in the files that PEFT writes."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

PREFIX = "base_model.model."


def save_adapter(
    to: Path, sizes: dict[str, tuple[int, int]], rank: int, seed: int, spread: float = 1.0, **config: Any
) -> Path:
    """An adapter of these layers, whose sizes are outputs and inputs, by their paths: what it adds is as large as
    `spread` times what a weight of a spread of 1 would give. `config` is beside what its settings are, or in the place
    of it."""
    random, tensors = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    for path, (outputs, inputs) in sizes.items():
        tensors[f"{PREFIX}{path}.lora_A.weight"] = torch.randn(rank, inputs, generator=random)
        tensors[f"{PREFIX}{path}.lora_B.weight"] = torch.randn(outputs, rank, generator=random) * spread / rank**0.5
    to.mkdir(parents=True, exist_ok=True)
    save_file(tensors, to / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none"}
    told |= {"modules_to_save": None, "use_dora": False, "fan_in_fan_out": False, "base_model_name_or_path": "a model"}
    (to / "adapter_config.json").write_text(json.dumps(told | config))
    return to
