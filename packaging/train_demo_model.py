"""Trains the demo model: writes stories from `stories.py`, fits a tokenizer, trains a Llama and a smaller draft.

    OMP_WAIT_POLICY=passive python packaging/train_demo_model.py [--out resources/models] [--minutes 38]

Seeds are fixed. The learning rate follows the share of the time budget that is spent, so that a slower machine ends
with fewer steps and a finished schedule; the shipped weights are one run on two cores. Writes bfloat16 safetensors.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from stories import dialogue
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{{ '<s>' }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONTEXT = 1024
NAMES = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads")
SIZES = {"stories-5m": (256, 6, 768, 8, 4), "stories-draft": (128, 2, 384, 4, 4)}  # of `NAMES`


def train_tokenizer(vocabulary: int = 3072) -> PreTrainedTokenizerFast:
    """A byte-level BPE over 20,000 dialogues: any text can be encoded, the grammar's words are mostly one token each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    texts = (m["content"] for _ in range(20_000) for m in dialogue(rng).messages)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    rest = {"chat_template": CHAT_TEMPLATE, "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **rest)


class Batches:
    """Packed rows of dialogues; each row begins with a whole one. Labels cover what the assistant says and its end."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self.tokenizer, self.rng = tokenizer, random.Random(seed)
        self.ids = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL}

    def document(self) -> tuple[list[int], list[int]]:
        ids, labels = [self.ids["<s>"]], [-100]
        for message in dialogue(self.rng).messages:
            said = self.tokenizer(message["content"], add_special_tokens=False).input_ids + [self.ids["</s>"]]
            ids += [self.ids[f"<|{message['role']}|>"], *said]
            labels += [-100, *(said if message["role"] == "assistant" else [-100] * len(said))]
        return ids, labels

    def next(self, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = []
        for _ in range(rows):
            ids: list[int] = []
            labels: list[int] = []
            while len(ids) < length:
                more_ids, more_labels = self.document()
                ids, labels = ids + more_ids, labels + more_labels
            batch.append((ids[:length], labels[:length]))
        return torch.tensor([b[0] for b in batch]), torch.tensor([b[1] for b in batch])


def train(name: str, tokenizer: PreTrainedTokenizerFast, minutes: float, peak: float, out: Path) -> None:
    """Trains one size for so many minutes: rows of 192 tokens, then of 768 for the last tenth so that long contexts work."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **dict(zip(NAMES, SIZES[name], strict=True)),
        **{f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")},
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    step_model = torch.compile(model)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)
    batches = Batches(tokenizer, seed=2)
    print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    begun, step, mean = time.perf_counter(), 0, 0.0
    while (spent := (time.perf_counter() - begun) / (60 * minutes)) < 1:
        warm = min(1.0, (step + 1) / 100)
        rate = peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * spent)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels = batches.next(*((4, 768) if spent > 0.9 else (20, 192)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = step_model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].reshape(-1, logits.shape[-1]).float(), labels[:, 1:].reshape(-1)
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        step += 1
        if step % 50 == 0:
            print(f"{name} step {step:5d}  {100 * spent:5.1f} %  loss {mean:.3f}  rate {rate:.1e}", flush=True)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(json.dumps({"model": name, "steps": step, "loss": round(mean, 4)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "resources" / "models")
    parser.add_argument(
        "--minutes", type=float, default=36.0, help="time to train the model; the draft gets a fifth of it"
    )
    options = parser.parse_args()
    tokenizer = train_tokenizer()
    train("stories-5m", tokenizer, options.minutes, 3e-3, options.out)
    train("stories-draft", tokenizer, options.minutes / 5, 4e-3, options.out)


if __name__ == "__main__":
    main()
