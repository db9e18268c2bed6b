"""How the demo's models of other attention learn: each begins with the demo model's weights around attention that is
new, and from then on learns what the demo model would say, and, for the first part of the time, what each of its layers
would have handed on. Seeds are fixed; the rate follows the share of the time that is spent.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from train_demo_model import SAVED_EVERY, Batches, keep
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

DENSE = "stories-5m"
LAYERS_UNTIL = 0.6  # of the time
MODELS = Path(__file__).parent.parent / "resources" / "models"


def asked(description: str | None, minutes: float, peak: float) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=MODELS)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--peak", type=float, default=peak, help="the highest learning rate of attention")
    parser.add_argument("--from", dest="begin", type=Path, help="a folder with such a model: go on from its weights")
    parser.add_argument("--state", type=Path, help="a folder to save to on the way, and to go on from")
    return parser.parse_args()


def learn(
    name: str,
    options: argparse.Namespace,
    begun: Callable[[LlamaForCausalLM], PreTrainedModel],
    attention: Callable[[nn.Module], nn.Module],
    left_out: tuple[str, ...] = (),
) -> None:
    """Trains what `begun` makes of the demo model, and writes it in bfloat16. `attention` is what is new in a layer;
    what is old learns at a quarter of its rate. `left_out` of the config is not written."""
    torch.manual_seed(0)
    teacher = LlamaForCausalLM.from_pretrained(MODELS / DENSE, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(MODELS / DENSE)
    model = begun(teacher)
    if options.begin is not None:
        model.load_state_dict(type(model).from_pretrained(options.begin / name, dtype=torch.float32).state_dict())
    new = {id(p) for layer in model.model.layers for p in attention(layer).parameters()}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in new) is fresh], "share": share}
        for fresh, share in ((True, 1.0), (False, 0.25))
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.peak, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    step, mean, far, seconds = 0, 0.0, 0.0, 0.0
    file = None if options.state is None else options.state / f"{name}.pt"
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    if file is not None and file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, mean, far, seconds = (saved[each] for each in ("step", "mean", "far", "seconds"))
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
            print(f"{name} step {step:5d}  {100 * spent:5.1f} %  {shown}", flush=True)
        if file is not None and now - saved_at > SAVED_EVERY:
            keep(file, model, optimizer, step=step, mean=mean, far=far, seconds=seconds)
            saved_at = now
    folder = options.out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    kept = {each: value for each, value in config.items() if each not in left_out}
    (folder / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    print(json.dumps({"model": name, "steps": step, "divergence": round(mean, 4)}), flush=True)
