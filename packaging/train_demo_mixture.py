"""Trains the demo's mixture of experts: the demo model with each MLP divided among eight experts, two a token.

    OMP_WAIT_POLICY=passive python packaging/train_demo_mixture.py [--out resources/models] [--minutes 45] [--state DIR]
    ... --from resources/models [--peak 5e-4]

It begins with the demo model's attention and embedding, and with experts that have a sixth of the neurons of its MLPs
each, drawn so that all are as often there ("Sparse Upcycling", Komatsuzaki et al. 2023). From then on it learns what
the demo model would say, and to ask all of a layer's experts as often as each other (the loss of "Switch
Transformers", Fedus et al. 2021). Seeds are fixed; the rate follows the share of the time that is spent. With `--state`
it saves what it needs every three minutes and goes on from there; with `--from` it begins with a mixture's weights.
Writes bfloat16 safetensors.

The shipped weights: 45 minutes of two cores beside other work, in which the experts of all layers were balanced
together, then 15 minutes from there, at a gentler rate, layer by layer.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, one_hot
from train_demo_model import NAMES, SAVED_EVERY, SIZES, Batches, keep
from transformers import LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, PreTrainedTokenizerFast

DENSE, NAME = "stories-5m", "stories-moe"
EXPERTS, ASKED, WIDTH = 8, 2, 128
BALANCE = 0.02  # of the imbalance, beside the words' loss


def divided(dense: LlamaForCausalLM) -> MixtralForCausalLM:
    """The dense model's weights, with the neurons of each MLP dealt out to the experts."""
    own = dense.config.to_dict()
    shared = (*NAMES, "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")
    kept = {name: own[name] for name in (*shared, "bos_token_id", "eos_token_id", "pad_token_id", "head_dim")}
    config = MixtralConfig(
        **kept | {"intermediate_size": WIDTH},
        num_local_experts=EXPERTS,
        num_experts_per_tok=ASKED,
        sliding_window=None,
        rope_theta=10_000.0,
        output_router_logits=True,
    )
    model = MixtralForCausalLM(config)
    weights = {name: weight for name, weight in dense.state_dict().items() if ".mlp." not in name}
    model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        for old, new in zip(dense.model.layers, model.model.layers, strict=True):
            neurons = SIZES[DENSE][2]
            dealt = torch.cat([torch.randperm(neurons) for _ in range(-(-EXPERTS * WIDTH // neurons))])
            for expert, mine in enumerate(dealt[: EXPERTS * WIDTH].view(EXPERTS, WIDTH)):
                halves = old.mlp.gate_proj.weight[mine], old.mlp.up_proj.weight[mine]
                new.mlp.experts.gate_up_proj[expert] = torch.cat(halves)
                new.mlp.experts.down_proj[expert] = 2 * old.mlp.down_proj.weight[:, mine]
    return model


def imbalance(router_logits: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The mean over the layers of experts * sum(share of tokens * mean probability): 1 where all are asked alike."""
    each = []
    for logits in router_logits:
        likely = logits.float().softmax(-1)
        asked = one_hot(likely.topk(ASKED, -1).indices, EXPERTS).sum(1).float().mean(0) / ASKED
        each.append(EXPERTS * (asked * likely.mean(0)).sum())
    return torch.stack(each).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = Path(__file__).parent.parent / "resources" / "models"
    parser.add_argument("--out", type=Path, default=models)
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--peak", type=float, default=1.5e-3, help="the highest learning rate")
    parser.add_argument("--from", dest="begin", type=Path, help="a folder with a mixture: go on from its weights")
    parser.add_argument("--state", type=Path, help="a folder to save to on the way, and to go on from")
    options = parser.parse_args()
    torch.manual_seed(0)
    teacher = LlamaForCausalLM.from_pretrained(models / DENSE, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(models / DENSE)
    model = divided(teacher)
    if options.begin is not None:
        begun = MixtralForCausalLM.from_pretrained(options.begin / NAME, dtype=torch.float32)
        model.load_state_dict(begun.state_dict())
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.peak, betas=(0.9, 0.95), fused=True)
    print(f"{NAME}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    step, mean, seconds = 0, 0.0, 0.0
    file = None if options.state is None else options.state / f"{NAME}.pt"
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    if file is not None and file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, mean, seconds = saved["step"], saved["mean"], saved["seconds"]
    batches = Batches(tokenizer, seed=3 + step)
    last = saved_at = time.perf_counter()
    while (spent := seconds / (60 * options.minutes)) < 1:
        rate = options.peak * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * spent)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels, _ = batches.next(*((2, 768) if spent > 0.8 else (6, 256)))
        said = labels[:, 1:] >= 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                heard = teacher.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][said]
                wanted = teacher.lm_head(heard).float().softmax(-1)
            out = model(input_ids=ids, use_cache=False)
        loss, uneven = cross_entropy(out.logits[:, :-1][said].float(), wanted), imbalance(out.router_logits)
        (loss + BALANCE * uneven).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        step += 1
        now = time.perf_counter()
        seconds, last = seconds + now - last, now
        if step % 50 == 0:
            shown = f"loss {mean:.3f}  imbalance {uneven.item():.3f}  rate {rate:.1e}"
            print(f"{NAME} step {step:5d}  {100 * spent:5.1f} %  {shown}", flush=True)
        if file is not None and now - saved_at > SAVED_EVERY:
            keep(file, model, optimizer, step=step, mean=mean, seconds=seconds)
            saved_at = now
    folder = options.out / NAME
    folder.mkdir(parents=True, exist_ok=True)
    model.config.output_router_logits = False
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(json.dumps({"model": NAME, "steps": step, "loss": round(mean, 4)}), flush=True)


if __name__ == "__main__":
    main()
