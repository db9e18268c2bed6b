"""Trains the demo model: writes stories and exercises, fits a tokenizer, trains a Llama and a smaller draft.

    OMP_WAIT_POLICY=passive python packaging/train_demo_model.py [--out resources/models] [--minutes 36]
    ... --from resources/models [--only stories-5m] [--state /tmp/training]

Seeds are fixed. The learning rate follows the share of the time budget that is spent, so that a slower machine ends
with fewer steps and a finished schedule. With `--from` it goes on from weights and keeps their tokenizer. With `--state`
it saves what it needs every three minutes and goes on from there.

The shipped weights: 36 minutes of two cores on stories alone, then with `--from` 55 minutes beside other work on stories
and exercises, in which the rate was set anew a few times and the copying heads' output was once made four times louder;
then 42 minutes in three parts, with the texts of `anything.py` among them: without those it had forgotten how to go on
with what stands outside of the chat format. The draft had 13 minutes under that model. Writes bfloat16 safetensors.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from exercises import document
from guided_heads import NAME, GuidedHeads, copied
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{{ '<s>' }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONTEXT = 1024
GUIDED = ("stories-5m",)
GUIDANCE = 0.3  # of the heads' loss beside the words', for the first 85 %
SAVED_EVERY = 180.0  # seconds
NAMES = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads")
SIZES = {"stories-5m": (256, 6, 768, 8, 4), "stories-draft": (128, 2, 384, 4, 4)}  # of `NAMES`


def train_tokenizer(vocabulary: int = 3072) -> PreTrainedTokenizerFast:
    """A byte-level BPE over 20,000 dialogues: any text can be encoded, the grammar's words are mostly one token each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    texts = (m["content"] for _ in range(20_000) for m in document(rng).messages)
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

    def document(self) -> tuple[list[int], list[int], list[int]]:
        """Its tokens, their labels, and where each one's next was said before (-1: it was not)."""
        messages = document(self.rng).messages
        if messages[0]["role"] == "given":
            return self.plain(*(message["content"] for message in messages))
        ids, labels, sources = [self.ids["<s>"]], [-100], [-1]
        parts: list[tuple[str, dict[int, int]]] = []  # texts, and the token of each letter
        for message in messages:
            text = message["content"]
            coded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            ids.append(self.ids[f"<|{message['role']}|>"])
            begin, said = len(ids), [*coded.input_ids, self.ids["</s>"]]
            parts.append((text, {i: begin + k for k, span in enumerate(coded.offset_mapping) for i in range(*span)}))
            ids += said
            labels += [-100, *(said if message["role"] == "assistant" else [-100] * len(said))]
            sources += [-1] * (1 + len(said))
            if message["role"] == "assistant":
                story = parts[-3] if len(parts) > 3 else parts[-2]  # or the question, where nothing was told before
                letters = copied(story[0], parts[-2][0], text)
                for k, (first, last) in enumerate(coded.offset_mapping):
                    in_question, letter = letters.get(first + (text[first] == " " and last > first + 1), (False, -1))
                    if letter >= 0:
                        sources[begin + k - 1] = (parts[-2] if in_question else story)[1][letter]
        return ids, labels, sources

    def plain(self, given: str, text: str) -> tuple[list[int], list[int], list[int]]:
        """The same of a text that goes on with a given one, outside of the chat format."""
        begin, end = (self.tokenizer(part, add_special_tokens=False).input_ids for part in (given, text))
        first = [self.ids["<s>"]] if self.rng.random() < 0.3 else []
        ids = [*first, *begin, *end, self.ids["</s>"]]
        labels = [*[-100] * (len(first) + len(begin)), *end, self.ids["</s>"]]
        return ids, labels, [-1] * len(ids)

    def next(self, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch = []
        for _ in range(rows):
            row: tuple[list[int], ...] = ([], [], [])
            while (begin := len(row[0])) < length:
                for whole, part in zip(row, self.document(), strict=True):
                    whole += part
                row[2][begin:] = [place + begin if place >= 0 else -1 for place in row[2][begin:]]
            batch.append([whole[:length] for whole in row])
        ids, labels, sources = (torch.tensor([row[i] for row in batch]) for i in range(3))
        return ids, labels, sources


def keep(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **told: float) -> None:
    """Saves a training to go on from: the file is whole, or the one before."""
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(whole | told, file.with_suffix(".part"))
    file.with_suffix(".part").replace(file)


def train(
    name: str,
    tokenizer: PreTrainedTokenizerFast,
    minutes: float,
    peak: float,
    out: Path,
    begin: Path | None,
    state: Path | None,
    teacher: LlamaForCausalLM | None,
) -> LlamaForCausalLM:
    """Trains one size for so many minutes, from the weights in the folder `begin` if there is one: rows of 256 tokens,
    then of 768 for the last fifth so that long contexts work. `state` is a folder to save to and to go on from. With a
    `teacher` it learns what that would say, not what the documents say: a draft is kept where the two agree."""
    torch.manual_seed(0)
    guided = GuidedHeads()
    config = LlamaConfig(
        **dict(zip(NAMES, SIZES[name], strict=True)),
        **{f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")},
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        attn_implementation=NAME if name in GUIDED else "sdpa",
    )
    model = LlamaForCausalLM(config)
    if begin is not None:
        model.load_state_dict(LlamaForCausalLM.from_pretrained(begin / name, dtype=torch.float32).state_dict())
    model.model.norm.register_forward_pre_hook(guided.hear)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)
    print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    step, mean, seconds = 0, 0.0, 0.0
    file = state / f"{name}.pt" if state is not None else None
    if file is not None and file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, mean, seconds = saved["step"], saved["mean"], saved["seconds"]
    batches = Batches(tokenizer, seed=2 + step)
    last = saved_at = time.perf_counter()
    while (spent := seconds / (60 * minutes)) < 1:
        warm = min(1.0, (step + 1) / 100)
        rate = peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * spent)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels, sources = batches.next(*((2, 768) if spent > 0.8 else (6, 256)))
        said = labels[:, 1:] >= 0
        guided.on = name in GUIDED and spent < 0.85
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model.lm_head(model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][said])
            wanted = labels[:, 1:][said]
            if teacher is not None:
                with torch.no_grad():
                    heard = teacher.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][said]
                    wanted = teacher.lm_head(heard).float().softmax(-1)
        loss = torch.nn.functional.cross_entropy(logits.float(), wanted)
        shown = 0.0, 0.0
        if guided.looked:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                aside = guided.loss(model, ids, sources)
            shown = aside.item(), guided.heard.item()
            (loss + GUIDANCE * aside).backward()
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        step += 1
        now = time.perf_counter()
        seconds, last = seconds + now - last, now
        if step % 50 == 0:
            print(
                f"{name} step {step:5d}  {100 * spent:5.1f} %  loss {mean:.3f}  rate {rate:.1e}  heads {shown[0]:.2f} {shown[1]:.2f}",
                flush=True,
            )
        if file is not None and now - saved_at > SAVED_EVERY:
            keep(file, model, optimizer, step=step, mean=mean, seconds=seconds)
            saved_at = now
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(json.dumps({"model": name, "steps": step, "loss": round(mean, 4)}), flush=True)
    return model.float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "resources" / "models")
    parser.add_argument(
        "--minutes", type=float, default=36.0, help="time to train the model; the draft gets a fifth of it"
    )
    parser.add_argument("--from", dest="begin", type=Path, help="a folder with both models: go on from them")
    parser.add_argument("--only", choices=tuple(SIZES), help="train one of the two")
    parser.add_argument("--state", type=Path, help="a folder to save to on the way, and to go on from")
    options = parser.parse_args()
    if options.state is not None:
        options.state.mkdir(parents=True, exist_ok=True)
    begin = options.begin
    tokenizer = train_tokenizer() if begin is None else PreTrainedTokenizerFast.from_pretrained(begin / "stories-5m")
    gentler = 1.0 if begin is None else 0.5
    taught = None
    if options.only == "stories-draft":
        taught = LlamaForCausalLM.from_pretrained(options.out / "stories-5m", dtype=torch.float32)
    for name, minutes, peak in (("stories-5m", options.minutes, 3e-3), ("stories-draft", options.minutes / 5, 4e-3)):
        if options.only in (None, name):
            taught = train(name, tokenizer, minutes, gentler * peak, options.out, begin, options.state, taught)


if __name__ == "__main__":
    main()
