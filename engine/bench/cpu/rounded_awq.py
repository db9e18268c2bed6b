"""AWQ checkpoints by rounding alone: as fast and as large as real ones, which calibration makes better."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from engine.bench.rounding import round_to_nearest
from engine.models.expert_weights import HeldExperts, held_by_experts
from engine.models.routing import holds_experts


def save_rounded_awq(folder: Path, out: Path, group: int = 128) -> Path:
    """Writes the model of `folder` as an AWQ checkpoint; its other files are copied. Returns `out`.

    Linear layers but the head are quantized, and the experts of a mixture one by one; those without a multiple of
    `group` inputs and of 8 outputs are left as they are.
    """
    module = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    state, kept = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}, []
    if module.config.tie_word_embeddings:
        del state["lm_head.weight"]
    for name, part in module.named_modules():
        if not isinstance(part, nn.Linear):
            continue
        each = part.in_features if group == -1 else group
        if part is module.get_output_embeddings() or part.in_features % each or part.out_features % 8:
            kept.append(name)
            continue
        values = round_to_nearest(state.pop(f"{name}.weight"), group)
        state |= dict(zip((f"{name}.qweight", f"{name}.qzeros", f"{name}.scales"), values))
    for path, part in module.named_modules():
        held = held_by_experts(part) if holds_experts(path, part) else None
        if held is None or held.in_turn:
            continue
        if not any(weight.shape[-1] % group for weight in (held.gate_up, held.down)):
            state = {name: tensor for name, tensor in state.items() if name.rpartition(".")[0] != path}
            for name, weight in _experts(path, held, module.config.model_type == "mixtral"):
                values = round_to_nearest(weight, group)
                state |= dict(zip((f"{name}.qweight", f"{name}.qzeros", f"{name}.scales"), values))
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.suffix != ".safetensors" and file.is_file():
            shutil.copy(file, out)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stored = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    config["quantization_config"] = {**stored, "modules_to_not_convert": kept}
    config["dtype"] = str(module.dtype).removeprefix("torch.")
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    copies = {name: tensor.detach().clone() for name, tensor in state.items()}  # tied ones may share memory
    save_file(copies, out / "model.safetensors", {"format": "pt"})
    return out


def _experts(path: str, held: HeldExperts, numbered: bool) -> Iterator[tuple[str, Tensor]]:
    """The name that AWQ checkpoints have for each expert's matrices, and each `[outputs, inputs]`."""
    if numbered:
        path = path.replace(".mlp.", ".block_sparse_moe.")
    for expert, (gate_up, down) in enumerate(zip(held.gate_up, held.down, strict=True)):
        names = ("w1", "w3", "w2") if numbered else ("gate_proj", "up_proj", "down_proj")
        yield from ((f"{path}.{expert}.{name}", weight) for name, weight in zip(names, (*gate_up, down)))
