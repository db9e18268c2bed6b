"""Makes a checkpoint of gpt-oss as OpenAI publishes them: its experts in MXFP4."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from engine.models.expert_weights import WEIGHTS
from engine.models.quantization.mxfp4 import rounded


def save_rounded_mxfp4(folder: Path, out: Path) -> Path:
    """From a plain checkpoint in one file, each expert's weights rounded."""
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (out / file.name).write_bytes(file.read_bytes())
    state = load_file(folder / "model.safetensors")
    for name in [name for name in state if name.rpartition(".")[2] in WEIGHTS]:
        made = [rounded(one.t()) for one in state.pop(name)]
        state |= {f"{name}_{what}": torch.stack(parts) for what, parts in zip(("blocks", "scales"), zip(*made))}
    save_file(state, out / "model.safetensors", {"format": "pt"})
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return out
