"""Trains the demo's hybrid: the demo model, four of whose six layers keep a state instead of keys and values.

    OMP_WAIT_POLICY=passive python packaging/train_demo_hybrid.py [--out resources/models] [--minutes 45] [--state DIR]
    ... --from resources/models [--peak 5e-4]

It is of Qwen3.5's architecture, with the gated delta rule. It begins with the demo model's embedding, MLPs and norms,
and with the attention of the layers that keep theirs, but for norms of queries and keys, which are new; all else begins
anew, and learns as `distillation.py` has it. With `--state` it saves what it needs every three minutes and goes on from
there; with `--from` it begins with weights of its own.

The shipped weights: 55 minutes beside other work.
"""

import torch
from distillation import asked, learn
from torch import nn
from train_demo_model import NAMES
from transformers import LlamaForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig

NAME = "stories-hybrid"
KINDS = ["linear_attention" if keeps else "full_attention" for keeps in (1, 1, 1, 0, 1, 0)]


def with_states(dense: LlamaForCausalLM) -> Qwen3_5ForCausalLM:
    """The dense model's weights, around layers of which most keep a state."""
    own = dense.config.to_dict()
    shared = (*NAMES, "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "head_dim")
    config = Qwen3_5TextConfig(
        **{name: own[name] for name in (*shared, "bos_token_id", "eos_token_id", "pad_token_id")},
        layer_types=KINDS,
        linear_num_key_heads=own["num_key_value_heads"],
        linear_num_value_heads=own["num_attention_heads"],
        linear_key_head_dim=own["head_dim"],
        linear_value_head_dim=own["head_dim"],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
            "mrope_section": [6, 5, 5],
        },
    )
    model = Qwen3_5ForCausalLM(config)
    weights = {name: weight for name, weight in dense.state_dict().items() if ".self_attn." not in name}
    # Norms multiply by one more than their weight.
    weights |= {name: weight - 1 for name, weight in weights.items() if name.endswith("norm.weight")}
    model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        for old, new in zip(dense.model.layers, model.model.layers, strict=True):
            if hasattr(new, "self_attn"):
                there, here = old.self_attn, new.self_attn
                # Of each head its query, then its gate: one that is closed by half.
                both = here.q_proj.weight.view(-1, 2, here.head_dim, own["hidden_size"])
                both[:, 0], both[:, 1] = there.q_proj.weight.view(-1, here.head_dim, own["hidden_size"]), 0
                here.k_proj.weight.copy_(there.k_proj.weight)
                here.v_proj.weight.copy_(there.v_proj.weight)
                here.o_proj.weight.copy_(2 * there.o_proj.weight)
                for norm in (here.q_norm, here.k_norm):
                    norm.weight.fill_(1.0)
    return model


def mixer(layer: nn.Module) -> nn.Module:
    return layer.self_attn if hasattr(layer, "self_attn") else layer.linear_attn


def main() -> None:
    learn(NAME, asked(__doc__, 45.0, 2e-3), with_states, mixer)


if __name__ == "__main__":
    main()
