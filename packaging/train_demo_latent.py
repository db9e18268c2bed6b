"""Trains the demo's model of latent attention: the demo model, with layers that keep a latent of each token.

    OMP_WAIT_POLICY=passive python packaging/train_demo_latent.py [--out resources/models] [--minutes 45] [--state DIR]
    ... --from resources/models [--peak 5e-4]

It begins with the demo model's embedding, MLPs and norms, and with values made of the latent directions that its own
values vary most in; queries and keys begin anew. From then on it learns what the demo model would say, and, for the
first part of the time, what each of its layers would have handed on. Seeds are fixed; the rate follows the share of the
time that is spent. With `--state` it saves what it needs every three minutes and goes on from there; with `--from` it
begins with weights of its own. Writes bfloat16 safetensors.

The shipped weights: 40 minutes beside other work, all but the last fifth of them on rows of 256 tokens, after which it
lost the thread beyond these; then 25 minutes with `--from`, a third of the rows of 768.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, mse_loss
from train_demo_model import NAMES, SAVED_EVERY, Batches, keep
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast

DENSE, NAME = "stories-5m", "stories-mla"
LATENT, ROTATED, PLAIN, VALUE = 64, 16, 16, 32  # numbers of a latent; of a head's key and query; of its value
LAYERS_UNTIL = 0.6  # of the time
# Of a config: there are none.
OF_EXPERTS = """
moe_intermediate_size n_group n_routed_experts n_shared_experts norm_topk_prob num_experts_per_tok
num_nextn_predict_layers output_router_logits routed_scaling_factor topk_group
""".split()


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = Path(__file__).parent.parent / "resources" / "models"
    parser.add_argument("--out", type=Path, default=models)
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--peak", type=float, default=2e-3, help="the highest learning rate of attention")
    parser.add_argument("--from", dest="begin", type=Path, help="a folder with such a model: go on from its weights")
    parser.add_argument("--state", type=Path, help="a folder to save to on the way, and to go on from")
    options = parser.parse_args()
    torch.manual_seed(0)
    teacher = LlamaForCausalLM.from_pretrained(models / DENSE, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(models / DENSE)
    model = with_latents(teacher)
    if options.begin is not None:
        begun = DeepseekV3ForCausalLM.from_pretrained(options.begin / NAME, dtype=torch.float32)
        model.load_state_dict(begun.state_dict())
    of_attention = {id(p) for layer in model.model.layers for p in layer.self_attn.parameters()}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in of_attention) is new], "share": share}
        for new, share in ((True, 1.0), (False, 0.25))
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.peak, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    print(f"{NAME}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    step, mean, far, seconds = 0, 0.0, 0.0, 0.0
    file = None if options.state is None else options.state / f"{NAME}.pt"
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    if file is not None and file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, mean, far, seconds = (saved[name] for name in ("step", "mean", "far", "seconds"))
    batches = Batches(tokenizer, seed=4 + step)
    last = saved_at = time.perf_counter()
    while (spent := seconds / (60 * options.minutes)) < 1:
        rate = options.peak * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * spent)))
        for group in optimizer.param_groups:
            group["lr"] = rate * group["share"]
        ids, labels, _ = batches.next(*((2, 768) if spent > 0.8 or step % 3 == 2 else (6, 256)))
        said = labels[:, 1:] >= 0
        layered = options.begin is None and spent < LAYERS_UNTIL
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                heard = teacher.model(input_ids=ids, use_cache=False, output_hidden_states=layered)
                likely = teacher.lm_head(heard.last_hidden_state[:, :-1][said]).float().log_softmax(-1)
            out = model.model(input_ids=ids, use_cache=False, output_hidden_states=layered)
            logits = model.lm_head(out.last_hidden_state[:, :-1][said]).float()
        wanted = likely.exp()
        loss = cross_entropy(logits, wanted) + (wanted * likely).sum(-1).mean()  # Kullback and Leibler's
        whole = loss
        if layered:
            pairs = zip(out.hidden_states[1:], heard.hidden_states[1:], strict=True)
            apart = [mse_loss(a.float(), b.float()) / b.float().square().mean() for a, b in pairs]
            whole = loss + torch.stack(apart).mean()
        whole.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        far = whole.item() - loss.item() if step == 0 else 0.98 * far + 0.02 * (whole.item() - loss.item())
        step += 1
        now = time.perf_counter()
        seconds, last = seconds + now - last, now
        if step % 50 == 0:
            shown = f"divergence {mean:.4f}  layers {far:.3f}  rate {rate:.1e}"
            print(f"{NAME} step {step:5d}  {100 * spent:5.1f} %  {shown}", flush=True)
        if file is not None and now - saved_at > SAVED_EVERY:
            keep(file, model, optimizer, step=step, mean=mean, far=far, seconds=seconds)
            saved_at = now
    folder = options.out / NAME
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in OF_EXPERTS}
    (folder / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    print(json.dumps({"model": NAME, "steps": step, "divergence": round(mean, 4)}), flush=True)


if __name__ == "__main__":
    main()
