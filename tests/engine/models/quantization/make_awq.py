"""Makes tiny checkpoints with autoawq, in a process of its own: autoawq changes the filter of warnings for good.

    python -m tests.engine.models.quantization.make_awq FOLDER

writes FOLDER/<name>, quantized, for each of `MODELS`.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedConfig

from tests.engine.tiny_models import TINY_MODELS, TinyModel, save_tiny_model

LOADED = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3")
SCALED = "gpt-neox"  # autoawq scales its activations too
MODELS = (*LOADED, SCALED)
GROUP = 32
TEXT = "Once upon a time there was a little fox who found a red kite in the tree."


def wide_enough(name: str) -> TinyModel:
    """A tiny model whose keys and values have 64 outputs: autoawq clips as many at a time."""

    def config() -> PreTrainedConfig:
        made = TINY_MODELS[name].config()
        made.head_dim = 32
        return made

    return TinyModel(config) if name in ("llama", "qwen2", "mistral") else TINY_MODELS[name]


def make(name: str, folder: Path) -> None:
    from awq import AutoAWQForCausalLM

    plain = folder / f"{name} plain"
    plain.mkdir(parents=True)
    save_tiny_model(wide_enough(name), plain)
    model = AutoAWQForCausalLM.from_pretrained(str(plain), torch_dtype=torch.float32, device_map="cpu")
    tokenizer = AutoTokenizer.from_pretrained(plain)
    model.quantize(
        tokenizer,
        quant_config={"zero_point": True, "q_group_size": GROUP, "w_bit": 4, "version": "GEMM"},
        calib_data=[TEXT] * 20,
        max_calib_samples=20,
        max_calib_seq_len=64,
    )
    model.save_quantized(str(folder / name))
    tokenizer.save_pretrained(folder / name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in MODELS:
        make(each, Path(sys.argv[1]))
