"""Tiny random hybrids, of whose layers some keep a state in the place of keys and values."""

from typing import Any

import transformers
from transformers import PreTrainedConfig

from tests.engine.tiny_models import LATENT, VOCABULARY, TinyModel

SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MIXED = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
SHORT = {"layer_types": ["conv", "full_attention", "conv"]}
DELTA = MIXED | {
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}  # fmt: skip
EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
}  # fmt: skip
MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_chunk_size": 8,
}  # fmt: skip
LATENTS = MIXED | LATENT | {
    "q_lora_rank": None, "num_key_value_heads": 4, "mlp_layer_types": ["dense", "sparse", "sparse"],
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1,
}  # fmt: skip
# By the class of its config: the gated delta rule, one with gates of each channel beside latents, convolutions alone,
# Mamba 2 (in all layers beside attention, or with layers in which no token hears of another), Mamba.
HYBRIDS: dict[str, dict[str, Any]] = {
    "Qwen3_5Text": DELTA,
    "Qwen3Next": DELTA | EXPERTS,
    "Qwen3_5MoeText": DELTA | EXPERTS,
    "OlmoHybrid": DELTA | {"head_dim": None, "linear_num_key_heads": 4},
    "KimiLinear": LATENTS | {"linear_head_dim": 16, "linear_num_heads": 4},
    "BailingHybrid": {name: value for name, value in LATENTS.items() if name != "q_lora_rank"} | {"head_dim": 16},
    "Lfm2": SHORT | {"block_auto_adjust_ff_dim": False},
    "Lfm2Moe": SHORT | EXPERTS | {"num_dense_layers": 1},
    "Lfm3": SHORT,
    "Bamba": MAMBA | {"attn_layer_indices": [1]},
    "FalconH1": MAMBA | {"mamba_d_ssm": 128, "num_hidden_layers": 2},
    "GraniteMoeHybrid": MAMBA | {
        "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 64,
    },
    "NemotronH": {
        "layers_block_type": ["mamba", "attention", "mamba", "mlp"], "num_hidden_layers": 4, "head_dim": 16,
        "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1, "chunk_size": 8,
        "conv_kernel": 4,
    },
    "Jamba": {
        "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2,
        "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 8,
        "use_mamba_kernels": False,
    },
}  # fmt: skip


def hybrid(kind: str, **changes: Any) -> TinyModel:
    values = {name: value for name, value in {**SHARED, **HYBRIDS[kind], **changes}.items() if value is not None}
    return TinyModel(lambda: _config(kind, values))


def _config(kind: str, values: dict[str, Any]) -> PreTrainedConfig:
    made: PreTrainedConfig = getattr(transformers, f"{kind}Config")(**values)
    return made
