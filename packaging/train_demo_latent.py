"""Trains the demo's model of latent attention: the demo model, with layers that keep a latent of each token.

    OMP_WAIT_POLICY=passive python packaging/train_demo_latent.py [--out resources/models] [--minutes 45] [--state DIR]
    ... --from resources/models [--peak 5e-4]

It begins with the demo model's embedding, MLPs and norms, and with values made of the latent directions that its own
values vary most in; queries and keys begin anew, and learn as `distillation.py` has it. With `--state` it saves what it
needs every three minutes and goes on from there; with `--from` it begins with weights of its own.

The shipped weights: 40 minutes beside other work, all but the last fifth of them on rows of 256 tokens, after which it
lost the thread beyond these; then 25 minutes with `--from`, a third of the rows of 768.
"""

import torch
from distillation import asked, learn
from train_demo_model import NAMES
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaForCausalLM

NAME = "stories-mla"
LATENT, ROTATED, PLAIN, VALUE = 64, 16, 16, 32  # numbers of a latent; of a head's key and query; of its value
# Of a config: there are none.
OF_EXPERTS = tuple(
    """
moe_intermediate_size n_group n_routed_experts n_shared_experts norm_topk_prob num_experts_per_tok
num_nextn_predict_layers output_router_logits routed_scaling_factor topk_group
""".split()
)


def with_latents(dense: LlamaForCausalLM) -> DeepseekV3ForCausalLM:
    """The dense model's weights, around attention that keeps latents."""
    own = dense.config.to_dict()
    shared = (*NAMES, "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")
    kept = {name: own[name] for name in (*shared, "bos_token_id", "eos_token_id", "pad_token_id")}
    config = DeepseekV3Config(
        **kept | {"num_key_value_heads": own["num_attention_heads"]},
        kv_lora_rank=LATENT,
        q_lora_rank=None,
        qk_rope_head_dim=ROTATED,
        qk_nope_head_dim=PLAIN,
        v_head_dim=VALUE,
        first_k_dense_replace=own["num_hidden_layers"],  # no experts
        rope_interleave=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    model = DeepseekV3ForCausalLM(config)
    weights = {name: weight for name, weight in dense.state_dict().items() if ".self_attn." not in name}
    model.load_state_dict(weights, strict=False)
    heads, group = own["num_attention_heads"], own["num_attention_heads"] // own["num_key_value_heads"]
    with torch.no_grad():
        for old, new in zip(dense.model.layers, model.model.layers, strict=True):
            made, spread, read = torch.linalg.svd(old.self_attn.v_proj.weight, full_matrices=False)
            most = spread[: LATENT * 3 // 4]  # the others are left to keys
            count = len(most)
            scale = (most.square().mean() * read[:count].square().sum(-1).mean()).sqrt()
            new.self_attn.kv_a_proj_with_mqa.weight[:count] = most[:, None] * read[:count] / scale
            values = (made[:, :count] * scale).view(-1, VALUE, count).repeat_interleave(group, 0)
            each = new.self_attn.kv_b_proj.weight.view(heads, PLAIN + VALUE, LATENT)
            each[:, PLAIN:, :count] = values
            new.self_attn.o_proj.weight.copy_(old.self_attn.o_proj.weight)
            wide = old.self_attn.q_proj.weight.std()
            for fresh in (new.self_attn.q_proj.weight, new.self_attn.kv_a_proj_with_mqa.weight[count:]):
                fresh.normal_(0, wide)
            each[:, :PLAIN].normal_(0, LATENT**-0.5)
    return model


def main() -> None:
    learn(NAME, asked(__doc__, 45.0, 2e-3), with_latents, lambda layer: layer.self_attn, OF_EXPERTS)


if __name__ == "__main__":
    main()
