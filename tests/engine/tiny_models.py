"""Tiny random decoders of many types, with the demo model's tokenizer.

Their weights are drawn much wider than a fresh model's, or greedy decoding would repeat one token and prove nothing.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

import resources

VOCABULARY = 3072  # the demo tokenizer's


@dataclass(frozen=True)
class TinyModel:
    """`config` makes the configuration; `std` is the spread of the weight matrices."""

    config: Callable[[], PreTrainedConfig]
    std: float = 0.25


def _llama_like(name: str, std: float = 0.25, **changes: Any) -> TinyModel:
    """Grouped queries (4 heads on 2), two layers; `name` is the class of the configuration."""
    values: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    } | changes  # fmt: skip
    return TinyModel(lambda: getattr(transformers, f"{name}Config")(**values), std)


_EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}

LATENT = {"kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
ROUTED = {
    "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
}  # fmt: skip

TINY_MODELS: dict[str, TinyModel] = {
    "llama": _llama_like("Llama"),
    "llama wide heads": _llama_like("Llama", head_dim=32, num_key_value_heads=1),  # head_dim is not hidden / heads
    "qwen2": _llama_like("Qwen2"),
    "qwen3": _llama_like("Qwen3", head_dim=32),
    "mistral": _llama_like("Mistral", sliding_window=8),
    "gemma2": _llama_like("Gemma2", head_dim=32, sliding_window=8, query_pre_attn_scalar=24),
    "gemma3": _llama_like("Gemma3Text", head_dim=32, sliding_window=8, num_hidden_layers=3, sliding_window_pattern=2),
    "phi3": _llama_like("Phi3", sliding_window=12),
    "olmo2": _llama_like("Olmo2"),
    "mixtral": _llama_like("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen3 moe": _llama_like("Qwen3Moe", head_dim=16, **_EXPERTS),
    "starcoder2": _llama_like("Starcoder2", sliding_window=8),
    "granite": _llama_like("Granite", attention_multiplier=0.2, residual_multiplier=0.8, logits_scaling=2.0),
    "smollm3": _llama_like("SmolLM3", no_rope_layers=[1, 0]),
    "cohere": _llama_like("Cohere", logit_scale=1.0),
    "gpt-oss": _llama_like("GptOss", head_dim=16, sliding_window=8, num_local_experts=4, num_experts_per_tok=2),
    "glm4": _llama_like("Glm4", head_dim=16),
    "deepseek-v3": _llama_like("DeepseekV3", num_key_value_heads=4, **LATENT, **ROUTED),
    "gpt2": TinyModel(
        lambda: transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=64,
            n_layer=2,
            n_head=4,
            n_positions=512,
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=False,
        )
    ),
    "gpt-neox": TinyModel(
        lambda: transformers.GPTNeoXConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=512,
            bos_token_id=1,
            eos_token_id=2,
        )
    ),
    "opt": TinyModel(
        lambda: transformers.OPTConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            ffn_dim=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=512,
            word_embed_proj_dim=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=False,
        )
    ),
}


def random_prompts(lengths: Iterable[int], seed: int = 7) -> list[list[int]]:
    """Token ids that every tiny model knows, none of them special."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in lengths]


def make_tiny_model(tiny: TinyModel, seed: int = 0, layers: int | None = None) -> PreTrainedModel:
    """The module in float32, its weights a function of `seed`; with its first `layers` alone, where that is given."""
    torch.manual_seed(seed)
    config = tiny.config()
    if layers is not None:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, tiny.std)
            elif "norm" not in name and "ln" not in name:  # biases and sinks
                parameter.normal_(0, 0.5)
    return module


def save_tiny_model(tiny: TinyModel, folder: Path, seed: int = 0, layers: int | None = None) -> None:
    """Writes weights, config and the demo tokenizer to `folder`."""
    make_tiny_model(tiny, seed, layers).save_pretrained(folder)
    demo = resources.path("models/stories-5m")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(demo / name, folder / name)


def change_config(folder: Path, **changes: Any) -> None:
    """Rewrites values of a folder's config.json; None removes a value."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
